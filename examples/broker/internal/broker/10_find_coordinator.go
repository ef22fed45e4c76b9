package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// Kinds of keys in FindCoordinator.
const (
	groupKeyType       = 0
	transactionKeyType = 1
)

// handleFindCoordinator returns the broker that leads the partition of a group. The first request
// creates the offsets topic.
func handleFindCoordinator(s *Server, c *wire.Conn, q *kmsg.FindCoordinatorRequest, r *wire.Reply) {
	var failed *kerr.Error
	if q.CoordinatorType == groupKeyType {
		failed = s.Controller.CreateOffsetsTopic()
	}
	r.Answer(func() kmsg.Response { // the answer is longer than the request
		resp := q.ResponseKind().(*kmsg.FindCoordinatorResponse)
		if q.Version < 4 {
			k := s.locate(c, q.CoordinatorKey, q.CoordinatorType, failed)
			resp.NodeID, resp.Host, resp.Port, resp.ErrorCode, resp.ErrorMessage = k.NodeID, k.Host, k.Port, k.ErrorCode, k.ErrorMessage
			return resp
		}
		for _, key := range q.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, s.locate(c, key, q.CoordinatorType, failed))
		}
		return resp
	})
}

// locate finds the coordinator of one key.
func (s *Server) locate(c *wire.Conn, key string, kind int8, failed *kerr.Error) kmsg.FindCoordinatorResponseCoordinator {
	k := kmsg.NewFindCoordinatorResponseCoordinator()
	k.Key, k.NodeID, k.Port = key, -1, -1
	refuse := func(err *kerr.Error, why string) kmsg.FindCoordinatorResponseCoordinator {
		k.ErrorCode, k.ErrorMessage = wire.Code(err), &why
		return k
	}
	switch kind {
	case groupKeyType:
	case transactionKeyType:
		// This is the Kafka error that is fatal to a producer. After other errors clients retry
		// forever (librdkafka) or report an invalid request (sarama).
		return refuse(kerr.TransactionalIDAuthorizationFailed, "this broker has no transactions")
	default:
		return refuse(kerr.InvalidRequest, "this broker coordinates consumer groups only: it has no share groups")
	}
	if failed != nil {
		return refuse(kerr.CoordinatorNotAvailable, "the topic of offsets cannot be made: "+failed.Message)
	}
	img, index := s.image(), s.groups.PartitionOf(key)
	t := img.ByName[meta.OffsetsTopic]
	if t == nil || int(index) >= len(t.Partitions) {
		return refuse(kerr.CoordinatorNotAvailable, "the topic of offsets is being made")
	}
	leader, ok := img.Node(t.Partitions[index].Leader)
	if !ok {
		return refuse(kerr.CoordinatorNotAvailable, "the group's partition has no leader now")
	}
	b := reachedBy(c, leader)
	k.NodeID, k.Host, k.Port = b.NodeID, b.Host, b.Port
	return k
}
