package broker

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

const clusterID = "limbo-example"

// autoCreateWait is how long a Metadata request that creates topics waits for their leaders.
// Without the wait clients would retry, and most would give up before there are leaders.
const autoCreateWait = 5 * time.Second

// handleMetadata creates the requested topics, but describes the cluster only when the answer is
// written: a description of every partition is a thousand times the size of the request for it, and
// must not wait in a queue.
func handleMetadata(s *Server, c *wire.Conn, q *kmsg.MetadataRequest, r *wire.Reply) {
	refused := map[string]*kerr.Error{}
	op := &topicsChange{srv: s, reply: r, build: func() kmsg.Response { return s.describe(c, q, refused) }}
	if mayCreate := !s.cfg.NoAutoCreate && (q.AllowAutoTopicCreation || q.Version < 4); mayCreate {
		for _, rt := range q.Topics {
			if rt.Topic == nil || s.image().ByName[*rt.Topic] != nil {
				continue
			}
			made, err := s.Controller.Create(strings.Clone(*rt.Topic), meta.TopicSpec{Partitions: -1, Replication: -1}, false)
			if err != nil && err != kerr.TopicAlreadyExists { // another request may create it first
				refused[*rt.Topic] = err
				continue
			}
			op.waiting = append(op.waiting, changingTopic{name: made.Name, id: made.ID})
		}
	}
	op.wait(c, autoCreateWait)
}

func (s *Server) describe(c *wire.Conn, q *kmsg.MetadataRequest, refused map[string]*kerr.Error) *kmsg.MetadataResponse {
	resp := q.ResponseKind().(*kmsg.MetadataResponse)
	img := s.image()
	resp.ClusterID = kmsg.StringPtr(clusterID)
	resp.ControllerID = -1
	for _, n := range img.Nodes {
		resp.Brokers = append(resp.Brokers, reachedBy(c, n))
		if resp.ControllerID < 0 {
			resp.ControllerID = n.ID // any broker can reach the controller
		}
	}

	// A null list asks for all topics; in version 0 an empty one does.
	if q.Topics == nil || q.Version == 0 && len(q.Topics) == 0 {
		for _, t := range img.All() {
			resp.Topics = append(resp.Topics, describeTopic(t))
		}
		return resp
	}
	// A topic that is named repeatedly is described once: otherwise 256 KiB of one name would be
	// answered with a gigabyte.
	seen := map[meta.TopicID]bool{}
	for i := range q.Topics {
		rt := &q.Topics[i]
		var found *meta.Topic
		notFound := kerr.UnknownTopicOrPartition
		if rt.Topic != nil {
			if found = img.ByName[*rt.Topic]; found == nil {
				if !meta.ValidTopicName(*rt.Topic) {
					notFound = kerr.InvalidTopicException
				} else if err := refused[*rt.Topic]; err != nil {
					notFound = err
				}
			}
		} else if found = img.ByID[rt.TopicID]; found == nil {
			notFound = kerr.UnknownTopicID
		}
		if found != nil {
			if !seen[found.ID] {
				seen[found.ID] = true
				resp.Topics = append(resp.Topics, describeTopic(found))
			}
			continue
		}
		st := kmsg.NewMetadataResponseTopic()
		st.Topic, st.TopicID, st.ErrorCode = rt.Topic, rt.TopicID, wire.Code(notFound)
		if st.Topic == nil && q.Version < 12 {
			st.Topic = kmsg.StringPtr("") // null is not allowed yet
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

func describeTopic(t *meta.Topic) kmsg.MetadataResponseTopic {
	st := kmsg.NewMetadataResponseTopic()
	st.Topic, st.TopicID, st.IsInternal = kmsg.StringPtr(t.Name), t.ID, t.Internal
	st.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, a := range t.Partitions {
		sp := &st.Partitions[i]
		sp.Default()
		sp.Partition = int32(i)
		sp.Leader, sp.LeaderEpoch = a.Leader, a.Epoch
		sp.Replicas, sp.ISR = a.Replicas, a.ISR
		if a.Leader == meta.NoLeader {
			sp.ErrorCode = wire.Code(kerr.LeaderNotAvailable)
		}
	}
	return st
}

// reachedBy returns a broker's address for a client: the broker's port at the host by which the
// client has reached this broker. That works even when brokers listen on all interfaces, because
// all brokers of this cluster run on one host.
func reachedBy(c *wire.Conn, n meta.Node) kmsg.MetadataResponseBroker {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = n.ID, n.Host, n.Port
	if host := c.LocalHost(); host != "" {
		b.Host = host
	}
	return b
}
