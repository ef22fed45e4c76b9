package timingwheel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Policy says what Shutdown does with the timers that are pending.
type Policy uint8

const (
	// Discard drops them; the expiry function is not called for them.
	Discard Policy = iota
	// HandBack returns their values, in order of their deadlines.
	HandBack
	// RunNow has them run at once, in order of their deadlines.
	RunNow
	// Await waits until each has run at its time or was stopped.
	Await
)

// String is the policy's name.
func (p Policy) String() string {
	switch p {
	case Discard:
		return "Discard"
	case HandBack:
		return "HandBack"
	case RunNow:
		return "RunNow"
	case Await:
		return "Await"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// pendingTimer is a timer as Shutdown takes it out or moves it up.
type pendingTimer[V any] struct {
	deadline tick
	timer    Timer
	value    V
}

// Shutdown ends the wheel. From its start new timers are refused with
// ErrClosed, then what is pending is dealt with by policy, then it waits for
// the running expiry functions and for the wheel's goroutines to end. After
// that the wheel holds nothing; its handles are stale.
//
// When ctx is done first, Shutdown returns its error. Nothing is lost by that:
// the shutdown goes on by its policy, and another call waits for it again, or
// ends it sooner by a stricter policy. Calling it any number of times, and at
// once, is fine: each timer still ends once. It may be called from the expiry
// function: it waits for all workers but those that are themselves in it.
//
// The values are what HandBack took out, also beside an error; nil otherwise.
// An unknown policy is an error, and changes nothing.
func (w *Wheel[V]) Shutdown(ctx context.Context, policy Policy) ([]V, error) {
	if policy > Await {
		return nil, fmt.Errorf("timingwheel: Shutdown's policy is %v, must be Discard, HandBack, RunNow or Await", policy)
	}
	if w.workers.excuse() {
		defer w.workers.recall()
	}
	var returned []V
	switch policy {
	case Discard, HandBack:
		taken := w.takeAll(policy)
		if policy == HandBack && len(taken) > 0 {
			returned = make([]V, len(taken))
			for i := range taken {
				returned[i] = taken[i].value
			}
		}
	case RunNow:
		w.runAll()
	case Await:
		for _, s := range w.shards {
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
		}
	}
	if err := w.workers.await(ctx, func() bool { return w.Len() == 0 }); err != nil {
		// The caller may never come back. Somebody has to see it through, or the
		// wheel's goroutines would outlive its last timer.
		w.seeThrough.Do(func() { go func() { _, _ = w.Shutdown(context.Background(), Await) }() })
		return returned, err
	}
	w.queue.Close() // the advancer leaves
	w.workers.close()
	for _, s := range w.shards {
		s.mu.Lock()
		s.forgetLocked()
		s.mu.Unlock()
	}
	return returned, w.workers.await(ctx, w.workers.gone)
}

// takeAll closes every shard and takes its timers out. They come back in order
// of their deadlines under HandBack, not at all under Discard.
func (w *Wheel[V]) takeAll(policy Policy) []pendingTimer[V] {
	var all []pendingTimer[V]
	for _, s := range w.shards {
		s.mu.Lock()
		s.closed = true
		n := s.counts.pending
		if policy == HandBack {
			all = s.appendPendingLocked(all)
			s.counts.returned += uint64(n)
		} else {
			s.counts.discarded += uint64(n)
		}
		s.counts.pending, s.counts.ready = 0, 0
		if w.options.MaxPending > 0 {
			w.held.Add(-int64(n))
		}
		s.forgetLocked()
		s.mu.Unlock()
	}
	sortByDeadline(all)
	w.workers.tell()
	return all
}

// runAll closes every shard and makes all its timers ready, across the shards
// in order of their deadlines.
func (w *Wheel[V]) runAll() {
	var all []pendingTimer[V]
	for _, s := range w.shards {
		s.mu.Lock()
		s.closed, s.urgent = true, true
		all = s.appendPendingLocked(all)
		s.mu.Unlock()
	}
	sortByDeadline(all)
	// Timers that were stopped, or taken by a worker, in between are not found
	// any more; those that were ready keep their place before all others.
	for len(all) > 0 {
		first := all[0]
		s := w.shards[first.timer.shard()]
		s.mu.Lock()
		id := s.buckets.alloc(bucketReady, 0, first.deadline)
		for len(all) > 0 && all[0].deadline == first.deadline && all[0].timer.shard() == s.num {
			i := all[0].timer.index()
			n := s.findLocked(all[0].timer)
			all = all[1:]
			if n != nil && s.bucketLocked(n).state != bucketReady {
				s.unlinkLocked(n)
				s.linkLocked(i, n, id)
			}
		}
		if s.buckets.table[id].count == 0 {
			s.buckets.release(id)
		} else {
			w.workers.handOver(s, id)
		}
		s.mu.Unlock()
	}
}

func (s *shard[V]) appendPendingLocked(all []pendingTimer[V]) []pendingTimer[V] {
	all = slices.Grow(all, s.counts.pending)
	for id := range s.buckets.table {
		s.eachLocked(&s.buckets.table[id], func(i uint32, n *node[V]) {
			all = append(all, pendingTimer[V]{n.deadline, makeTimer(s.num, n.gen, i), n.value})
		})
	}
	return all
}

func sortByDeadline[V any](all []pendingTimer[V]) {
	slices.SortFunc(all, func(a, b pendingTimer[V]) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.timer.shard(), b.timer.shard()))
	})
}

// forgetLocked drops a closed shard's memory. Records that the delay queue,
// the ready list or a cascade still name are found missing there.
func (s *shard[V]) forgetLocked() {
	s.slabs, s.rows, s.spareRow = slabs[V]{}, slabs[row]{}, 0
	s.buckets = buckets{seq: s.buckets.seq}
	s.levels, s.cascading = nil, nil
}

// The workers' side of it.

func (p *workers[V]) excuse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	excused := p.members.excuse()
	if excused && p.ready.n > 0 {
		p.wakeLocked() // one more may be started in its stead
	}
	return excused
}

func (p *workers[V]) recall() {
	p.mu.Lock()
	p.members.recall()
	p.mu.Unlock()
}

func (p *workers[V]) tell() {
	p.mu.Lock()
	p.members.tell()
	p.mu.Unlock()
}

func (p *workers[V]) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members.gone()
}

func (p *workers[V]) close() {
	p.mu.Lock()
	p.closing = true
	p.wake.Broadcast()
	p.mu.Unlock()
}

// await blocks until done says true; it is asked again at each change that
// the members or an emptied shard tell of.
func (p *workers[V]) await(ctx context.Context, done func() bool) error {
	for {
		// First the channel, then the question: a change in between closes it.
		p.mu.Lock()
		changed := p.members.wait()
		p.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
