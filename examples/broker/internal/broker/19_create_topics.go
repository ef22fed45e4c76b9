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
	requests := map[string]int{}
	for i := range q.Topics {
		requests[q.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, len(q.Topics))
	for i := range q.Topics {
		rt, st := &q.Topics[i], &resp.Topics[i]
		st.Default()
		st.Topic = rt.Topic
		created, refusal := s.createTopic(rt, requests[rt.Topic] > 1, q.ValidateOnly)
		if refusal != nil {
			st.ErrorCode, st.ErrorMessage = refusal.Fields()
			st.NumPartitions, st.ReplicationFactor = -1, -1
			continue
		}
		st.NumPartitions, st.ReplicationFactor = int32(len(created.Partitions)), int16(len(created.Partitions[0].Replicas))
		if !q.ValidateOnly {
			st.TopicID = created.ID
			op.waiting = append(op.waiting, changingTopic{name: created.Name, id: created.ID, code: &st.ErrorCode})
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}

func (s *Server) createTopic(rt *kmsg.CreateTopicsRequestTopic, duplicate, validateOnly bool) (*meta.Topic, *wire.Refusal) {
	if duplicate {
		return nil, &wire.Refusal{Code: kerr.InvalidRequest, Message: "topic is named twice in this request"}
	}
	spec, refusal := topicSpec(rt, &s.cfg)
	if refusal != nil {
		return nil, refusal
	}
	created, err := s.Controller.Create(strings.Clone(rt.Topic), spec, validateOnly)
	if err != nil {
		return nil, &wire.Refusal{Code: err, Message: err.Description}
	}
	return created, nil
}

// topicSpec reads the requested partitions, replicas and settings of a topic. It refuses requests
// that this broker cannot fulfil, and does not ignore any part of them.
func topicSpec(rt *kmsg.CreateTopicsRequestTopic, cfg *Config) (meta.TopicSpec, *wire.Refusal) {
	spec := meta.TopicSpec{Partitions: rt.NumPartitions, Replication: rt.ReplicationFactor}
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return spec, &wire.Refusal{Code: kerr.InvalidRequest, Message: "both counts and an assignment"}
		}
		for i, a := range rt.ReplicaAssignment {
			if a.Partition != int32(i) {
				return spec, &wire.Refusal{Code: kerr.InvalidReplicaAssignment, Message: "partitions must be assigned in order, from 0 on"}
			}
			spec.Replicas = append(spec.Replicas, slices.Clone(a.Replicas))
		}
	}
	for _, c := range rt.Configs {
		if err := settings.Set(&spec.Settings, c.Name, c.Value, cfg.settings()); err != nil {
			return spec, &wire.Refusal{Code: kerr.InvalidConfig, Message: err.Error()}
		}
	}
	return spec, nil
}
