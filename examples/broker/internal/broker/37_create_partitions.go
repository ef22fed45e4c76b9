package broker

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleCreatePartitions waits, as handleCreateTopics does, until this broker knows of the new
// partitions and each has a leader.
func handleCreatePartitions(s *Server, c *wire.Conn, q *kmsg.CreatePartitionsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.CreatePartitionsResponse)
	op := &topicsChange{srv: s, reply: r, build: func() kmsg.Response { return resp }}
	asked := map[string]int{}
	for i := range q.Topics {
		asked[q.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, len(q.Topics))
	for i := range q.Topics {
		rt, st := &q.Topics[i], &resp.Topics[i]
		st.Default()
		st.Topic = rt.Topic
		var replicas [][]int32
		for _, a := range rt.Assignment {
			replicas = append(replicas, slices.Clone(a.Replicas))
		}
		if asked[rt.Topic] > 1 {
			st.ErrorCode, st.ErrorMessage = wire.Code(kerr.InvalidRequest), kmsg.StringPtr("topic is named twice in this request")
			continue
		}
		grown, err := s.Controller.Grow(rt.Topic, rt.Count, replicas, q.ValidateOnly)
		switch {
		case err != nil:
			st.ErrorCode, st.ErrorMessage = wire.Code(err), kmsg.StringPtr(err.Description)
		case !q.ValidateOnly:
			op.waiting = append(op.waiting, changingTopic{name: grown.Name, id: grown.ID, partitions: len(grown.Partitions), code: &st.ErrorCode})
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}
