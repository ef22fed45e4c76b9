package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func handleCreateTopics(s *Server, c *wire.Conn, q *kmsg.CreateTopicsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.CreateTopicsResponse)
	op := &topicsChange{srv: s, reply: r, build: func() kmsg.Response { return resp }}
	asked := map[string]int{}
	for i := range q.Topics {
		asked[q.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, len(q.Topics))
	for i := range q.Topics {
		rt, st := &q.Topics[i], &resp.Topics[i]
		st.Default()
		st.Topic = rt.Topic
		made, bad := s.createTopic(rt, asked[rt.Topic] > 1, q.ValidateOnly)
		if bad != nil {
			st.ErrorCode, st.ErrorMessage = bad.Fields()
			st.NumPartitions, st.ReplicationFactor = -1, -1
			continue
		}
		st.NumPartitions, st.ReplicationFactor = int32(len(made.Partitions)), int16(len(made.Partitions[0].Replicas))
		if !q.ValidateOnly {
			st.TopicID = made.ID
			op.waiting = append(op.waiting, changingTopic{name: made.Name, id: made.ID, code: &st.ErrorCode})
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}

func (s *Server) createTopic(rt *kmsg.CreateTopicsRequestTopic, twice, validateOnly bool) (*meta.Topic, *wire.Refusal) {
	if twice {
		return nil, &wire.Refusal{Code: kerr.InvalidRequest, Message: "topic is named twice in this request"}
	}
	shape, bad := shapeOf(rt, &s.cfg)
	if bad != nil {
		return nil, bad
	}
	made, err := s.Controller.Create(strings.Clone(rt.Topic), shape, validateOnly)
	if err != nil {
		return nil, &wire.Refusal{Code: err, Message: err.Description}
	}
	return made, nil
}

// shapeOf reads the requested shape and settings of a topic. It refuses requests that this broker
// cannot fulfil, and does not ignore any part of them.
func shapeOf(rt *kmsg.CreateTopicsRequestTopic, cfg *Config) (meta.Shape, *wire.Refusal) {
	shape := meta.Shape{Partitions: rt.NumPartitions, Replication: rt.ReplicationFactor}
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return shape, &wire.Refusal{Code: kerr.InvalidRequest, Message: "both counts and an assignment"}
		}
		for i, a := range rt.ReplicaAssignment {
			if a.Partition != int32(i) {
				return shape, &wire.Refusal{Code: kerr.InvalidReplicaAssignment, Message: "partitions must be assigned in order, from 0 on"}
			}
			shape.Replicas = append(shape.Replicas, slices.Clone(a.Replicas))
		}
	}
	for _, c := range rt.Configs {
		if err := settings.Set(&shape.Settings, c.Name, c.Value, cfg.settings()); err != nil {
			return shape, &wire.Refusal{Code: kerr.InvalidConfig, Message: err.Error()}
		}
	}
	return shape, nil
}
