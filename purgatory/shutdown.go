package purgatory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// closing is how far the shutdown is.
type closing struct {
	begun atomic.Bool // set once, by Shutdown

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed when a shard becomes empty; nil while nobody waits
}

// Shutdown ends the purgatory. From its start operations are refused with
// ErrClosed; then every waiting one ends as Closed (P12), its Complete being
// called by Shutdown's own goroutine, or by the goroutine that checks it just
// then; then the workers' goroutines end.
//
// When ctx is done first, Shutdown returns its error; the shutdown goes on,
// and another call waits for it again. That is for the waiting: a Complete
// that Shutdown has called itself must return before it looks at ctx.
//
// Calling it any number of times, and at once, is fine. It may be called from
// a Complete. Not from a TryComplete: it would wait, until ctx is done, for
// the operation that is being checked.
//
// It waits for the operations that end on workers to have returned from their
// Complete; for those that other goroutines of yours end, only until they have
// left the purgatory.
func (p *Purgatory[K]) Shutdown(ctx context.Context) error {
	p.end.begun.Store(true)
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	var all []Pending
	for i := range p.shards {
		all = p.shards[i].appendWaiting(all)
	}
	endAll(all)
	return p.close(ctx, p.Delayed)
}

// close waits for the last operation to leave, and ends the wheel.
func (t *host) close(ctx context.Context, delayed func() int) error {
	for {
		// First the channel, then the question: a change in between closes it.
		changed := t.end.wait()
		if delayed() == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := t.wheel.Shutdown(ctx, timingwheel.Discard)
	return err
}

// endAll ends operations as Closed. A Complete that ends the goroutine, by
// runtime.Goexit, does not keep the others from theirs (P7).
func endAll(all []Pending) {
	defer func() {
		if len(all) > 0 {
			endAll(all)
		}
	}()
	for len(all) > 0 {
		h := all[0]
		all = all[1:]
		h.end(Closed)
	}
}

// appendWaiting adds the operations in a shard's lists, those in more lists
// than one as often.
func (s *shard[K]) appendWaiting(all []Pending) []Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.Grow(all, s.watched)
	s.eachListLocked(func(l *watchers[K]) {
		l.each(func(r *record) { all = append(all, r.handle()) })
	})
	return all
}

func (c *closing) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *closing) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
