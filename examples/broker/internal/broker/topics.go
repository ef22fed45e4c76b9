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

// topicsChange is a delayed operation: the controller has decided to create or
// to delete topics, and the answer waits until this broker has acted on it and
// every new partition has a leader, so that who is told finds it so.
type topicsChange struct {
	srv     *Server
	reply   *wire.Reply
	build   func() kmsg.Response // what to answer then
	waiting []changingTopic
}

type changingTopic struct {
	name       string // the watch key
	id         meta.TopicID
	gone       bool   // it is being deleted
	partitions int    // that it is to have at least
	code       *int16 // of its part of the answer, if that has one
}

func (t *changingTopic) done(img *meta.Image) bool {
	found := img.ByID[t.id]
	if t.gone {
		return found == nil
	}
	return found != nil && len(found.Partitions) >= t.partitions && !slices.ContainsFunc(found.Partitions, func(a meta.Assignment) bool { return a.Leader == meta.NoLeader })
}

// wait parks the answer until all is done, or answers if nothing is to do.
func (o *topicsChange) wait(c *wire.Conn, timeout time.Duration) {
	if len(o.waiting) == 0 {
		o.answer()
		return
	}
	names := make([]string, len(o.waiting))
	for i, t := range o.waiting {
		names[i] = t.name
	}
	_, err := o.srv.changes.TryCompleteElseWatch(c.Context(), o, timeout, names...)
	if o.srv.notParked(err) {
		o.answer()
	}
}

// TryComplete reports whether this broker knows of all of it.
func (o *topicsChange) TryComplete() bool {
	img := o.srv.image()
	return !slices.ContainsFunc(o.waiting, func(t changingTopic) bool { return !t.done(img) })
}

// Complete runs where this broker learns of the topics, or on a worker.
func (o *topicsChange) Complete(outcome purgatory.Outcome, _ error) {
	settle(outcome, o.reply, o.answer)
}

func (o *topicsChange) answer() {
	img := o.srv.image()
	for _, t := range o.waiting {
		if t.code != nil && !t.done(img) { // it will be, all the same
			*t.code = wire.Code(kerr.RequestTimedOut)
		}
	}
	o.reply.Answer(o.build)
}

// announceTopics completes what waits for topics that have come.
func (s *Server) announceTopics(before, now *meta.Image) {
	for id, t := range now.ByID {
		if before.ByID[id] != t {
			s.changes.CheckAndComplete(t.Name)
		}
	}
	for id, t := range before.ByID {
		if now.ByID[id] == nil {
			s.changes.CheckAndComplete(t.Name)
		}
	}
}
