package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func handleDeleteTopics(s *Server, c *wire.Conn, q *kmsg.DeleteTopicsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
	op := &topicsChange{srv: s, reply: r, build: func() kmsg.Response { return resp }}
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, 0, len(q.TopicNames)+len(q.Topics)) // never reallocated: op.waiting points into its elements
	img := s.Controller.Image()
	del := func(found *meta.Topic, name *string, id meta.TopicID, unknown *kerr.Error) {
		resp.Topics = append(resp.Topics, kmsg.NewDeleteTopicsResponseTopic())
		st := &resp.Topics[len(resp.Topics)-1]
		st.Topic, st.TopicID = name, id
		switch {
		case found == nil:
			st.ErrorCode = wire.Code(unknown)
			return
		case found.Internal:
			st.ErrorCode = wire.Code(kerr.PolicyViolation)
			return
		case !s.Controller.Remove(found.ID):
			st.ErrorCode = wire.Code(unknown)
			return
		}
		st.Topic, st.TopicID = kmsg.StringPtr(found.Name), found.ID
		op.waiting = append(op.waiting, changingTopic{name: found.Name, id: found.ID, deleting: true, code: &st.ErrorCode})
	}
	for i := range q.TopicNames {
		del(img.ByName[q.TopicNames[i]], &q.TopicNames[i], meta.TopicID{}, kerr.UnknownTopicOrPartition)
	}
	for _, rt := range q.Topics {
		if rt.Topic != nil {
			del(img.ByName[*rt.Topic], rt.Topic, rt.TopicID, kerr.UnknownTopicOrPartition)
		} else {
			del(img.ByID[rt.TopicID], nil, rt.TopicID, kerr.UnknownTopicID)
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}
