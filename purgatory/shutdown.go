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
	begun atomic.Bool // set once, by Close

	finish sync.Once     // starts the goroutine that ends the wheel
	done   chan struct{} // closed when that one has

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed when a shard becomes empty; nil while nobody waits
}

// Close begins a shutdown and does not wait for its end. From now on operations
// are refused with ErrClosed, and every waiting one ends as Closed: Close calls
// its Complete, or the goroutine does that checks it just then. When the last one
// has left, the goroutines of the workers end.
//
// It may be called from a Complete and a TryComplete, any number of times. It
// returns when every Complete has that it calls itself.
func (p *Purgatory[K]) Close() {
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
	p.close(p.Delayed)
}

// Shutdown is [Purgatory.Close] that waits until no operation is left and the
// goroutines of the workers have ended. So it must not be called from a Complete
// or a TryComplete, for which it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error; the shutdown goes on, and
// another call waits for it again. That is for the waiting: a Complete that
// Shutdown has called itself must return before it looks at ctx. Any number of
// calls may be made, at once or after the end. A nil ctx panics, and changes
// nothing.
//
// It waits for the operations that end on workers to have returned from their
// Complete; for those that other goroutines of yours end, only until they have
// left the purgatory.
func (p *Purgatory[K]) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	p.Close()
	return p.closed(ctx)
}

// close has a goroutine wait for the last operation to leave and end the wheel,
// so that a shutdown is seen through whoever waits for it.
func (t *host) close(delayed func() int) {
	t.end.finish.Do(func() {
		go func() {
			for {
				// First the channel, then the question: a change in between closes it.
				changed := t.end.wait()
				if delayed() == 0 {
					break
				}
				<-changed
			}
			_, _ = t.wheel.Shutdown(context.Background(), timingwheel.Discard)
			close(t.end.done)
		}()
	})
}

// closed waits for the end of the shutdown.
func (t *host) closed(ctx context.Context) error {
	select {
	case <-t.end.done:
		return nil
	default:
	}
	select {
	case <-t.end.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func mustHave(ctx context.Context) {
	if ctx == nil {
		panic("purgatory: the context is nil")
	}
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
