package broker

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// topicsChange is a delayed operation. The controller has decided to create or delete topics, and
// the answer waits until this broker has applied that and every new partition has a leader: the
// client can then use the topics at once.
type topicsChange struct {
	srv     *Server
	reply   *wire.Reply
	build   func() kmsg.Response // builds the answer
	waiting []changingTopic
}

type changingTopic struct {
	name       string // the watch key
	id         meta.TopicID
	deleting   bool   // the topic is being deleted
	partitions int    // the least number it must have
	code       *int16 // the error code of the topic in the answer; nil if it has none
}

func (t *changingTopic) done(img *meta.Image) bool {
	found := img.ByID[t.id]
	if t.deleting {
		return found == nil
	}
	return found != nil && len(found.Partitions) >= t.partitions && !slices.ContainsFunc(found.Partitions, func(a meta.Assignment) bool { return a.Leader == meta.NoLeader })
}

// wait parks the answer until all changes are done, or answers at once if there are none.
func (o *topicsChange) wait(c *wire.Conn, timeout time.Duration) {
	if len(o.waiting) == 0 {
		o.answer()
		return
	}
	names := make([]string, len(o.waiting))
	for i, t := range o.waiting {
		names[i] = t.name
	}
	_, err := o.srv.topicChanges.TryCompleteElseWatch(c.Context(), o, timeout, names...)
	if o.srv.notParked(err) {
		o.answer()
	}
}

// TryComplete reports whether this broker has applied all the changes.
func (o *topicsChange) TryComplete() bool {
	img := o.srv.image()
	return !slices.ContainsFunc(o.waiting, func(t changingTopic) bool { return !t.done(img) })
}

// Complete runs on the goroutine that applies an image, or on a worker.
func (o *topicsChange) Complete(outcome purgatory.Outcome, _ error) {
	completeParked(outcome, o.reply, o.answer)
}

func (o *topicsChange) answer() {
	img := o.srv.image()
	for _, t := range o.waiting {
		if t.code != nil && !t.done(img) { // the change still happens after the timeout
			*t.code = wire.Code(kerr.RequestTimedOut)
		}
	}
	o.reply.Answer(o.build)
}

// announceTopics completes the operations that wait for a topic that has changed or was deleted.
func (s *Server) announceTopics(before, now *meta.Image) {
	for id, t := range now.ByID {
		if before.ByID[id] != t {
			s.topicChanges.CheckAndComplete(t.Name)
		}
	}
	for id, t := range before.ByID {
		if now.ByID[id] == nil {
			s.topicChanges.CheckAndComplete(t.Name)
		}
	}
}
