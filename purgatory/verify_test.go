package purgatory

import (
	"context"
	"math/bits"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// testOp is an operation that verifies its own contract: its methods never overlap (alone, P3),
// and nothing follows Complete (one outcome, P1).
type testOp struct {
	t     testing.TB
	ready atomic.Bool          // the result of TryComplete without try
	try   func(check int) bool // used instead of ready; check counts from 1
	end   func(Outcome)        // called by Complete, after counting it
	cause error                // that Complete received

	running atomic.Int32 // methods running
	checks  atomic.Int32
	ends    atomic.Int32
	outcome atomic.Uint32
}

func newOp(t testing.TB) *testOp { return &testOp{t: t} }

// newFaultyOp makes an operation that is never ready and misbehaves in one check.
func newFaultyOp(t testing.TB, check int, fault func()) *testOp {
	op := newOp(t)
	op.try = func(n int) bool {
		if n == check {
			fault()
		}
		return false
	}
	return op
}

func (o *testOp) TryComplete() bool {
	defer o.enter("TryComplete")()
	n := o.checks.Add(1)
	if o.ends.Load() != 0 {
		o.t.Errorf("P3: check %d follows Complete(%v)", n, o.Outcome())
	}
	if o.try != nil {
		return o.try(int(n))
	}
	return o.ready.Load()
}

func (o *testOp) Complete(how Outcome, cause error) {
	defer o.enter("Complete")()
	if o.ends.Add(1) != 1 {
		o.t.Errorf("P1: Complete(%v) after Complete(%v)", how, o.Outcome())
	}
	if (cause == nil) != (how == Completed) {
		o.t.Errorf("P14: Complete(%v, %v)", how, cause)
	}
	o.cause = cause
	o.outcome.Store(uint32(how))
	if o.end != nil {
		o.end(how)
	}
}

func (o *testOp) enter(name string) (leave func()) {
	if o.running.Add(1) != 1 {
		o.t.Errorf("P3: %s overlaps with another call", name)
	}
	return func() { o.running.Add(-1) }
}

// Outcome returns 0 while there is none.
func (o *testOp) Outcome() Outcome { return Outcome(o.outcome.Load()) }

// open makes a purgatory; a panic fails the test unless the test handles panics itself.
func open[K comparable](t testing.TB, o Options) *Purgatory[K] {
	t.Helper()
	if o.OnPanic == nil {
		o.OnPanic = func(p Panic) { t.Errorf("unexpected panic: %v\n%s", p.Value, p.Stack) }
	}
	p, err := New[K](o)
	require.NoError(t, err)
	shutdownAtEnd(t, p)
	return p
}

// shutdownAtEnd shuts s down at the end of a test. It waits for at most 10 s: if the shutdown
// hangs, the test has already failed.
func shutdownAtEnd(t testing.TB, s interface{ Shutdown(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
}

// mustShutdown ends a purgatory and checks that nothing is left. In a bubble, synctest itself
// reports leaked goroutines.
func mustShutdown[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	require.NoError(t, p.Shutdown(context.Background()))
	requireEmpty(t, p)
	if p.ownsClock {
		require.Zero(t, p.Stats().Wheel.Workers, "workers are left")
	}
}

func mustWatch[K comparable](t testing.TB, p *Purgatory[K], op Operation, timeout time.Duration, keys ...K) Pending {
	t.Helper()
	h, err := p.TryCompleteElseWatch(context.Background(), op, timeout, keys...)
	require.NoError(t, err)
	require.NotZero(t, h)
	return h
}

// requireEmpty fails if the purgatory holds anything (no leftovers, P5), by its statistics and
// by an inspection of its parts. A sweep may be on the wheel.
func requireEmpty[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	st := p.Stats()
	if p.Watched() != 0 || p.Len() != 0 || p.KeyCount() != 0 || timers(&p.core) != 0 ||
		st.Watched != 0 || st.Pending != 0 || st.Keys != 0 || p.limit.Held() != 0 {
		t.Fatalf("P5: left behind: watched %d, pending %d, keys %d, timers %d, held %d; %+v",
			p.Watched(), p.Len(), p.KeyCount(), timers(&p.core), p.limit.Held(), st)
	}
	verify(t, p)
}

// timers returns the number of timers on the wheel, without future sweeps.
func timers(c *core) int {
	sweeps := func() (n int) {
		c.each(func(part *tally) {
			if part.sweeping {
				if _, planned := c.clock.timers.Value(part.sweep); planned {
					n++
				}
			}
		})
		return n
	}
	for { // until no sweep was scheduled or begun in between
		n, planned := c.clock.timers.Len(), sweeps()
		if planned == sweeps() && n == c.clock.timers.Len() {
			return n - planned
		}
	}
}

// verify checks all invariants of a purgatory at rest: no call in progress, no worker busy, no
// shared wheel.
func verify[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	check := func(ok bool, format string, args ...any) {
		if !ok {
			t.Helper()
			t.Fatalf(format, args...)
		}
	}
	met := map[*waiter]int{} // number of lists by operation
	keys, watched := 0, 0
	verifyTable(t, &p.table, func(e *entry[K, watchlist]) {
		l := &e.value
		check(e.hash == p.hash(e.key), "%v stands under %x", e.key, e.hash)
		check(l.n > 0, "%v has no watchers", e.key)
		keys++
		watched += int(l.n)
		enter := func(w *waiter, c *chunk, slot int) {
			met[w]++
			found := false
			for key, h := range w.keyHashes() {
				var at position
				if x := w.extra.Load(); x != nil {
					at = x.positions[key]
				}
				found = found || h == uint32(e.hash) && at.chunk == c && (c == nil || int(at.slot) == slot)
			}
			check(found, "%v: an operation knows nothing of slot %d", e.key, slot)
		}
		n := int(l.contiguous)
		check(n <= maxContiguous && (l.hasRest || n <= maxInline), "%v: %d side by side", e.key, n)
		check(l.hasRest == (l.rest != nil), "%v: longer %v, rest %p", e.key, l.hasRest, l.rest)
		near := l.inline[:]
		if l.hasRest {
			near = append(slices.Clone(near), l.rest.contiguous[:]...)
		}
		for i, w := range near {
			check((w != nil) == (i < n), "%v: %p at position %d of %d", e.key, w, i, n)
			if w != nil {
				enter(w, nil, i)
			}
		}
		if l.hasRest {
			check(l.rest.walks == 0, "%v: a walk is left", e.key)
			check(l.n > maxInline/2, "%v: a rest of nothing", e.key)
			check(l.rest.head == nil || l.n > maxContiguous/2, "%v: chunks for %d", e.key, l.n)
			var prev *chunk
			for c := l.rest.head; c != nil; prev, c = c, c.next {
				check(c.prev == prev, "%v: prev and next do not agree at %d", e.key, n)
				check(c.list == l.rest, "%v: a chunk names another list", e.key)
				check(c.walks == 0, "%v: a walk is left", e.key)
				check(c.used != 0 && bits.Len32(c.used) <= int(c.end) && c.end <= perChunk, "%v: used %b, end %d", e.key, c.used, c.end)
				for slot, w := range c.slots {
					check((c.used>>slot&1 == 1) == (w != nil), "%v: slot %d holds %p, used %b", e.key, slot, w, c.used)
					if w != nil {
						n++
						enter(w, c, slot)
					}
				}
			}
			check(l.rest.tail == prev, "%v: the tail is not the last", e.key)
		}
		check(int(l.n) == n, "%v: %d watchers counted, %d found", e.key, l.n, n)
	})
	verifyTallies(t, &p.core, len(met), watched, keys)
	armed := 0
	for w, lists := range met {
		check(w.state.word.Load()<<(64-genShift) == 0 && w.state.generation() > 0, "an operation at rest has state %b", w.state.word.Load())
		check(w.op != nil && w.core == &p.core, "an operation that waits is no more")
		check(lists == int(w.n), "an operation is in %d lists of %d", lists, w.n)
		if w.timer != (timingwheel.Timer{}) {
			armed++
		}
	}
	check(timers(&p.core) == armed, "the wheel holds %d timers, the operations %d", timers(&p.core), armed)
	verifyDeferred(t, &p.deferred)
}

// verifyTable calls f with each entry, and checks that each can be found.
func verifyTable[K comparable, V any](t testing.TB, table *table[K, V], f func(*entry[K, V])) {
	t.Helper()
	table.visit(func(b *bucket[K, V]) bool {
		require.Zero(t, b.number&^b.mask.Load(), "the number of a bucket is beyond its mask")
		b.each(func(e *entry[K, V]) {
			require.Same(t, b, table.at(uint32(e.hash)), "%v is not in its bucket", e.key)
			require.Same(t, e, b.find(e.key, e.hash), "%v is there twice", e.key)
			f(e)
		})
		return true
	})
	size, all := table.size.Load(), *table.segments.Load()
	require.Zero(t, size%perSegment)
	require.LessOrEqual(t, int(size/perSegment), len(all))
	for i := range all {
		require.Equal(t, uint32(i) < size/perSegment, all[i].Load() != nil, "segment %d of %d", i, size/perSegment)
	}
	require.Zero(t, table.visitors)
}

// verifyTallies checks the tallies of a core at rest.
func verifyTallies(t testing.TB, c *core, operations, watched, keys int) {
	t.Helper()
	working := 0
	c.each(func(part *tally) {
		working += part.working
		require.Equal(t, c.closing.begun.Load(), part.closed)
	})
	select {
	case <-c.closing.done:
		require.Zero(t, working, "workers are busy")
	default: // an operation may just be returning from its Complete
	}
	require.Equal(t, operations, c.pending(), "operations")
	require.Equal(t, watched, c.watched(), "watches")
	require.Equal(t, keys, c.keyCount(), "keys")
	if c.options.MaxPending > 0 {
		require.Equal(t, int64(operations), c.limit.Held(), "operations counted against the bound")
	}
}

func verifyDeferred[K comparable](t testing.TB, d *deferred[K]) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Empty(t, d.states, "a deferred key waits, and no worker is busy")
	require.Zero(t, len(d.order)-d.head)
	var none K
	for _, k := range d.order[:cap(d.order)] {
		require.Equal(t, none, k, "a key is done with and held on to")
	}
}

// onWorker reports whether the caller runs on one of the wheel's workers.
func onWorker() bool {
	return strings.Contains(string(debug.Stack()), "timingwheel.(*workers")
}

// recorder records values in order.
type recorder[T comparable] struct {
	mu   sync.Mutex
	seen []T
}

func (j *recorder[T]) record(x T) {
	j.mu.Lock()
	j.seen = append(j.seen, x)
	j.mu.Unlock()
}

// take returns the values recorded since its last call.
func (j *recorder[T]) take() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := append([]T{}, j.seen...)
	j.seen = nil
	return seen
}

// collected runs the garbage collector until done returns true.
func collected(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		runtime.GC()
		if done() {
			return
		}
		runtime.Gosched() // cleanups and sweeps run on other goroutines
	}
	t.Fatalf("P5: %s is not collected", what)
}

// blockedOnMutex waits until a goroutine is blocked on a mutex in the function.
func blockedOnMutex(t testing.TB, function string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, function) && strings.Contains(g, "[sync.Mutex.Lock") {
				return
			}
		}
		runtime.Gosched()
	}
	t.Fatalf("no goroutine blocks on a mutex in %s", function)
}
