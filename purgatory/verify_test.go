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

// testOp is an operation that watches over its own contract: that its methods
// never overlap, and that nothing follows Complete (P1, P3).
type testOp struct {
	t     testing.TB
	ready atomic.Bool          // what TryComplete says without try
	try   func(check int) bool // instead; check counts from 1
	end   func(Outcome)        // called by Complete, once it is counted

	inside  atomic.Int32 // methods running
	checks  atomic.Int32
	ends    atomic.Int32
	outcome atomic.Uint32
}

func newOp(t testing.TB) *testOp { return &testOp{t: t} }

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

func (o *testOp) Complete(how Outcome) {
	defer o.enter("Complete")()
	if o.ends.Add(1) != 1 {
		o.t.Errorf("P1: Complete(%v) after Complete(%v)", how, o.Outcome())
	}
	o.outcome.Store(uint32(how))
	if o.end != nil {
		o.end(how)
	}
}

func (o *testOp) enter(name string) (leave func()) {
	if o.inside.Add(1) != 1 {
		o.t.Errorf("P3: %s overlaps with another call", name)
	}
	return func() { o.inside.Add(-1) }
}

// Outcome is 0 while there is none.
func (o *testOp) Outcome() Outcome { return Outcome(o.outcome.Load()) }

// open makes a purgatory; panics that the test does not ask for fail it.
func open[K comparable](t testing.TB, o Options) *Purgatory[K] {
	t.Helper()
	if o.OnPanic == nil {
		o.OnPanic = func(p Panic) { t.Errorf("unexpected panic: %v\n%s", p.Value, p.Stack) }
	}
	p, err := New[K](o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p
}

// shut ends a purgatory and sees that nothing is left of it. In a bubble,
// synctest itself reports the goroutines that are left.
func shut[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	require.NoError(t, p.Shutdown(context.Background()))
	empty(t, p)
	w := p.Stats().Wheel
	require.Zero(t, w.Workers, "workers are left")
}

// park enters an operation that has to wait.
func park[K comparable](t testing.TB, p *Purgatory[K], op Operation, timeout time.Duration, keys ...K) Pending {
	t.Helper()
	h, err := p.TryCompleteElseWatch(op, timeout, keys...)
	require.NoError(t, err)
	require.NotZero(t, h)
	return h
}

// empty fails if the purgatory holds anything (P5), by its own figures and by
// a look at everything it is made of.
func empty[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	st := p.Stats()
	if p.Watched() != 0 || p.Delayed() != 0 || p.Keys() != 0 || p.wheel.Len() != 0 ||
		st.Watched != 0 || st.Delayed != 0 || st.Keys != 0 || st.Wheel.Pending != 0 || p.held.Load() != 0 {
		t.Fatalf("P5: left behind: watched %d, delayed %d, keys %d, timers %d, held %d; %+v",
			p.Watched(), p.Delayed(), p.Keys(), p.wheel.Len(), p.held.Load(), st)
	}
	verify(t, p)
}

// verify checks all invariants of a purgatory that is at rest: no call in
// progress, no worker busy.
func verify[K comparable](t testing.TB, p *Purgatory[K]) {
	t.Helper()
	check := func(ok bool, format string, args ...any) {
		if !ok {
			t.Helper()
			t.Fatalf(format, args...)
		}
	}
	for i := range p.shards {
		p.shards[i].mu.Lock()
		defer p.shards[i].mu.Unlock()
	}
	met := map[*record]int{} // in how many lists
	delayed := make([]int, len(p.shards))
	total := 0
	for i := range p.shards {
		s := &p.shards[i]
		watched := 0
		lists := 0
		for _, place := range s.keys.places {
			if l := place.list; l != nil {
				lists++
				at, hash := p.place(l.key)
				check(&p.shards[at] == s && place.hash == hash && l.hash == hash, "list of %v stands under %x", l.key, place.hash)
				check(s.keys.find(l.key, hash) == l, "%v is there twice, or not to be found", l.key)
				check(l.head != nil && l.n > 0, "%v has no watchers", l.key)
				n := 0
				var prev *row[K]
				for r := l.head; r != nil; prev, r = r, r.next {
					check(r.prev == prev, "%v: prev and next do not agree at %d", l.key, n)
					check(r.list == l, "%v: a row names another list", l.key)
					check(r.walks == 0, "%v: a walk is left", l.key)
					check(r.used != 0 && bits.Len16(r.used) <= int(r.end) && r.end <= rowSlots, "%v: used %b, end %d", l.key, r.used, r.end)
					for slot, h := range r.slots {
						check((r.used>>slot&1 == 1) == (h != nil), "%v: slot %d holds %p, used %b", l.key, slot, h, r.used)
						if h == nil {
							continue
						}
						n++
						met[h]++
						places := placesOf[K](h)
						k := slices.IndexFunc(places, func(w watch[K]) bool { return w.row == r })
						check(k >= 0 && places[k].slot == uint8(slot) && int(places[k].shard) == i, "%v: an operation knows nothing of slot %d", l.key, slot)
						if k == 0 {
							delayed[i]++
						}
					}
				}
				check(l.tail == prev, "%v: the tail is not the last", l.key)
				check(l.n == n, "%v: %d watchers counted, %d found", l.key, l.n, n)
				watched += n
			}
		}
		check(s.named == lists && s.keys.n == lists, "shard %d: %d keys counted, %d in the table, %d found", i, s.named, s.keys.n, lists)
		check(4*lists <= 3*len(s.keys.places), "shard %d: %d keys in a table of %d", i, lists, len(s.keys.places))
		check(8*lists >= len(s.keys.places) || len(s.keys.places) <= keepKeys, "shard %d: %d keys in a table of %d", i, lists, len(s.keys.places))
		rows := 0
		for r := s.spareRows; r != nil; r = r.next {
			rows++
			check(r.list == nil && r.used == 0 && r.end == 0 && r.walks == 0 && r.slots == [rowSlots]*record{}, "shard %d: a spare row is not empty", i)
		}
		check(rows == int(s.rows) && rows <= maxSpareRows, "shard %d: %d spare rows, %d counted", i, rows, s.rows)
		check(s.watched == watched, "shard %d: %d watches counted, %d found", i, s.watched, watched)
		lists = 0
		for l := s.spare; l != nil; l = l.next {
			var none K
			lists++
			check(*l == watchers[K]{key: none, next: l.next}, "shard %d: a spare list is not empty", i)
		}
		check(lists == int(s.lists) && lists <= maxSpare, "shard %d: %d spare lists, %d counted", i, lists, s.lists)
		check(!s.closed || s.keys.n == 0, "shard %d is closed and holds keys", i)
		check(s.closed == p.end.begun.Load(), "shard %d: closed %v", i, s.closed)
	}
	for i := range p.shards {
		check(p.shards[i].delayed == delayed[i], "shard %d: %d operations counted, %d found", i, p.shards[i].delayed, delayed[i])
		total += delayed[i]
	}
	check(len(met) == total, "%d operations found, %d by their first key", len(met), total)
	timers := 0
	for h, lists := range met {
		check(h.state.word.Load()<<(64-genShift) == 0 && h.state.generation() > 0, "an operation at rest has state %b", h.state.word.Load())
		check(h.op != nil && h.host == &p.host, "an operation that waits is no more")
		entered := 0
		for _, w := range placesOf[K](h) {
			if w.entered {
				entered++
			}
		}
		check(lists == entered, "an operation is in %d lists of %d", lists, entered)
		if h.timer != (timingwheel.Timer{}) {
			timers++
		}
	}
	check(p.wheel.Len() == timers, "the wheel holds %d timers, the operations %d", p.wheel.Len(), timers)
	if p.options.MaxOperations > 0 {
		check(p.held.Load() == int64(total), "%d operations counted against the bound, %d wait", p.held.Load(), total)
	}
	d := &p.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	check(len(d.queued) == len(d.order)-d.head, "%d keys queued, %d in order", len(d.queued), len(d.order)-d.head)
	check(len(d.queued) == 0 || p.end.begun.Load(), "a key that was handed over waits, and no worker is busy")
	var none K
	for i, k := range d.order[:cap(d.order)] {
		check(d.head <= i && i < len(d.order) || k == none, "the key %v is done with and held on to", k)
	}
}

// placesOf is where an operation stands in the lists of its keys.
func placesOf[K comparable](r *record) []watch[K] {
	return r.waits.(interface{ places() []watch[K] }).places()
}

// shardOf is the shard that a key belongs to.
func (p *Purgatory[K]) shardOf(key K) *shard[K] {
	at, _ := p.place(key)
	return &p.shards[at]
}

// onWorker says whether the caller runs on one of the wheel's workers.
func onWorker() bool {
	return strings.Contains(string(debug.Stack()), "timingwheel.(*workers")
}

// journal notes who came, in order.
type journal[T comparable] struct {
	mu   sync.Mutex
	seen []T
}

func (j *journal[T]) note(x T) {
	j.mu.Lock()
	j.seen = append(j.seen, x)
	j.mu.Unlock()
}

// take is what was noted since it was last called.
func (j *journal[T]) take() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := append([]T{}, j.seen...)
	j.seen = nil
	return seen
}

// collected waits until done says that the garbage collector has been by.
func collected(t testing.TB, what string, done func() bool) {
	t.Helper()
	for range 100 {
		runtime.GC()
		if done() {
			return
		}
	}
	t.Fatalf("P5: %s is not collected", what)
}

// blockedOnMutex waits until a goroutine is blocked on a mutex in the function.
func blockedOnMutex(function string) {
	buf := make([]byte, 1<<20)
	for {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, function) && strings.Contains(g, "[sync.Mutex.Lock") {
				return
			}
		}
		runtime.Gosched()
	}
}
