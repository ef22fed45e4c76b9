package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// twins are a store and an oracle that get the same calls.
type twins struct {
	*fixture
	oracle *oracle.Store
	rnd    *rand.Rand
	ids    map[string]store.ID // the last ID of each plan
	plans  []string
	keys   []string // of occurrences and timers
	held   [][2]store.Holder
	log    []string
}

// Random calls on plans, their occurrences and other timers of one shard get the oracle's answers
// and leave the oracle's state. The folder is intact after each of them, and after crashes.
func TestPlansLikeTheOracle(t *testing.T) {
	t.Parallel()
	rounds := 12
	if long() {
		rounds = 2000
	}
	for seed := range rounds {
		newTwins(t, uint64(seed)).run()
	}
}

func newTwins(t *testing.T, seed uint64) *twins {
	w := &twins{rnd: rand.New(rand.NewPCG(seed, 33)), ids: map[string]store.ID{}}
	limits := store.Limits{MaxPending: []int{0, 0, 9}[seed%3]}
	w.fixture = newFixture(t, func(o *Options) { o.Shards, o.Limits = 1, limits })
	var err error
	w.oracle, err = oracle.New(1, limits, func() time.Time { return w.clock.Now() })
	require.NoError(t, err)
	for i := range 3 {
		plan := store.PlanKey(fmt.Sprint("s", i))
		w.plans = append(w.plans, plan)
		for j := range 4 {
			w.keys = append(w.keys, fmt.Sprint(plan, j))
		}
	}
	w.keys = append(w.keys, "a", "b")
	return w
}

func (w *twins) run() {
	w.Cleanup(func() {
		if w.Failed() {
			for _, line := range w.log {
				w.Log(line)
			}
		}
	})
	for range 120 {
		switch n := w.rnd.IntN(20); {
		case n < 5:
			w.swap()
		case n < 10:
			w.claim()
		case n < 14:
			w.end()
		case n < 16:
			w.cancel()
		case n == 16:
			w.scheduleAndRequeue()
		case n < 19:
			w.clock.Advance([]time.Duration{time.Millisecond, 4 * time.Second, 11 * time.Second}[w.rnd.IntN(3)])
			w.note("advance to %v", w.clock.Now().UnixMilli())
		default:
			w.crash()
			w.oracle.Restart()
			w.note("crash")
		}
		w.compare()
	}
}

func (w *twins) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *twins) same(want, got any, wantErr, gotErr error) {
	w.Helper()
	w.NoError(wantErr)
	w.NoError(gotErr)
	w.Equal(want, got, "the oracle answers the first")
}

func (w *twins) due() store.Millis {
	now := store.Millis(w.clock.Now().UnixMilli())
	return []store.Millis{1, now, now + 1, now + 5000, store.MaxMillis, store.Millis(1 + w.rnd.IntN(5))}[w.rnd.IntN(6)]
}

func (w *twins) body() []byte {
	return bodyOf(store.NewID(), []int{0, 10, maxInline, maxInline + 1, 3000}[w.rnd.IntN(5)])
}

func (w *twins) entry(key string) store.Entry {
	return store.Entry{Key: key, ID: store.NewID(), Topic: fmt.Sprint(w.rnd.IntN(3)), Body: w.body(), At: w.due()}
}

func (w *twins) swap() {
	var swaps []store.PlanSwap
	for range 1 + w.rnd.IntN(3) {
		i := w.rnd.IntN(len(w.plans))
		p := store.PlanSwap{
			Key: w.plans[i], Expected: w.ids[w.plans[i]], ID: store.NewID(), Body: w.body(), Due: w.due(),
			Wake: store.Wake(w.rnd.IntN(3)), Seen: uint64(w.rnd.IntN(8)),
		}
		for j := range 4 {
			if w.rnd.IntN(3) == 0 {
				p.Entries = append(p.Entries, w.entry(w.keys[4*i+j]))
			}
		}
		switch w.rnd.IntN(8) {
		case 0:
			p.Expected = store.NewID()
		case 1:
			if p.Expected != (store.ID{}) {
				p.ID = store.ID{}
			}
		}
		swaps = append(swaps, p)
	}
	want, _, wantH, wantErr := w.oracle.SwapPlans(w.ctx, 0, swaps, store.SwapClaim{})
	got, _, gotH, gotErr := w.SwapPlans(w.ctx, 0, swaps, store.SwapClaim{})
	for _, p := range swaps {
		w.note("swap %q %v to %v, due %d, wake %d, seen %d, %d entries", p.Key, p.Expected, p.ID, p.Due, p.Wake, p.Seen, len(p.Entries))
	}
	w.note("%v", want)
	w.same(want, got, wantErr, gotErr)
	w.Equal(wantH, gotH)
	for i, p := range swaps {
		if want[i] == store.Swapped {
			w.ids[p.Key] = p.ID
		}
	}
}

func (w *twins) claim() {
	c := newClaim(1 + w.rnd.IntN(6))
	c.Plans, c.MaxAttempts, c.FirstLane = w.rnd.IntN(5), 1+w.rnd.IntN(3), w.rnd.IntN(store.Lanes+1)
	c.MaxBytes = []int{1, 300, 3200, store.MaxClaim}[w.rnd.IntN(4)]
	for range 1 + w.rnd.IntN(2) { // the second time it is sent again
		want, wantH, wantErr := w.oracle.Claim(w.ctx, 0, c)
		got, gotH, gotErr := w.Claim(w.ctx, 0, c)
		w.note("claim %d plans, %d timers, %d bytes, %d attempts", c.Plans, c.Max, c.MaxBytes, c.MaxAttempts)
		for i := range min(len(want.Leases), len(got.Leases)) {
			w.held = append(w.held, [2]store.Holder{want.Leases[i].Holder, got.Leases[i].Holder})
			want.Leases[i].Fence, got.Leases[i].Fence = 0, 0 // they differ, because bodies take numbers too
			w.note("  %q", want.Leases[i].Key)
		}
		for _, leases := range [][]store.Lease{want.Leases, got.Leases} {
			for i := range leases {
				leases[i].Body = append([]byte{}, leases[i].Body...)
			}
		}
		w.same(want, got, wantErr, gotErr)
		w.Equal(wantH, gotH)
	}
}

func (w *twins) end() {
	var ends [2][]store.Outcome
	for range 1 + w.rnd.IntN(4) {
		if len(w.held) == 0 {
			return
		}
		h := w.held[max(0, len(w.held)-1-w.rnd.IntN(6))]
		kind := store.OutcomeKind(1 + w.rnd.IntN(5))
		if store.IsPlan(h[0].Key) && (kind == store.DeadLetter || kind == store.Done && w.rnd.IntN(4) > 0) {
			kind = store.Retry
		}
		e := store.Outcome{Kind: kind, Error: fmt.Sprintf("%0130d", w.rnd.IntN(10)), Delay: time.Second}
		for i := range ends {
			e.Holder = h[i]
			ends[i] = append(ends[i], e)
		}
		w.note("end %q: %v", h[0].Key, kind)
	}
	want, wantH, wantErr := w.oracle.End(w.ctx, 0, ends[0])
	got, gotH, gotErr := w.End(w.ctx, 0, ends[1])
	w.note("%v", want)
	w.same(want, got, wantErr, gotErr)
	w.Equal(wantH, gotH)
	for i, e := range ends[0] {
		if want[i] == store.Ended && e.Kind == store.Done && store.IsPlan(e.Key) {
			w.ids[e.Key] = store.ID{}
		}
	}
}

func (w *twins) someKeys() (keys []string) {
	for range 1 + w.rnd.IntN(3) {
		keys = append(keys, w.keys[w.rnd.IntN(len(w.keys))])
	}
	w.note("%q", keys)
	return keys
}

func (w *twins) cancel() {
	w.note("cancel")
	keys := w.someKeys()
	want, wantErr := w.oracle.Cancel(w.ctx, 0, keys)
	got, gotErr := w.Cancel(w.ctx, 0, keys)
	w.same(want, got, wantErr, gotErr)
}

func (w *twins) scheduleAndRequeue() {
	w.note("schedule and requeue")
	keys := w.someKeys()
	entries := []store.Entry{w.entry(keys[0])}
	want, _, wantErr := w.oracle.Schedule(w.ctx, 0, entries)
	got, _, gotErr := w.Schedule(w.ctx, 0, entries)
	w.same(want, got, wantErr, gotErr)
	wantRe, wantH, wantErr := w.oracle.Requeue(w.ctx, 0, keys)
	gotRe, gotH, gotErr := w.Requeue(w.ctx, 0, keys)
	w.same(wantRe, gotRe, wantErr, gotErr)
	w.Equal(wantH, gotH)
}

// compare compares the whole contents of both, and verifies the folder.
func (w *twins) compare() {
	w.Helper()
	verify(w.TB, w.Store)
	want, wantErr := w.oracle.Stats(w.ctx, 0)
	got, gotErr := w.Stats(w.ctx, 0)
	w.same(want, got, wantErr, gotErr)
	for _, key := range slices.Concat(w.keys, w.plans) {
		want, wantErr := w.oracle.Get(w.ctx, 0, key)
		got, gotErr := w.Get(w.ctx, 0, key)
		w.Equal(wantErr, gotErr)
		w.Equal(shown(want), shown(got))
	}
	plans, plansErr := w.oracle.Plans(w.ctx, 0, "", 10)
	page, pageErr := w.Plans(w.ctx, 0, "", 10)
	w.NoError(plansErr)
	w.NoError(pageErr)
	w.Len(page, len(plans))
	for i := range page {
		w.Equal(shown(plans[i]), shown(page[i]))
	}
}

func shown(r store.Record) store.Record {
	r.Fence, r.Body = 0, append([]byte{}, r.Body...)
	return r
}

// Once armed, failingRead fails the read of a file with a given number, and all after it.
type failingRead struct {
	armed atomic.Bool
	at    int64
	n     atomic.Int64
}

func (*failingRead) String() string { return "failingRead" }

func (r *failingRead) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileReadAt && r.armed.Load() && r.n.Add(1)-1 >= r.at {
		return syscall.EIO
	}
	return nil
}

// planOnDisk has 400 plans in tables that are not cached. The last, s, waits for the ends of its 40
// occurrences: the last two are leased, in another block than the plan's timer.
func planOnDisk(t *testing.T, change ...func(*Options)) (f *fixture, p store.PlanSwap, leases []store.Lease) {
	f = newFixture(t, append(change, func(o *Options) { o.Shards = 1 })...)
	var swaps []store.PlanSwap
	for i := range 400 {
		swaps = append(swaps, planOf(fmt.Sprintf("fill%04d", i)))
		swaps[i].Body = bodyOf(swaps[i].ID, 200)
	}
	f.swapped(swaps...)
	p = planOf("s")
	p.Wake, p.Due = store.WakeOnEnd, store.MaxMillis
	for i := range 40 {
		e := entry(fmt.Sprintf("%s%02d", p.Key, i), 250)
		e.At = store.Millis(100 - i)
		p.Entries = append(p.Entries, e)
	}
	f.swapped(p)
	leases = f.claim(0, 2)
	f.Len(leases, 2)
	f.NoError(f.db.Flush())
	f.NoError(f.db.Compact(f.ctx, []byte{0}, []byte{255}, false)) // so that only calls read
	return f, p, leases
}

func planOf(schedule string) store.PlanSwap {
	return store.PlanSwap{Key: store.PlanKey(schedule), ID: store.NewID(), Due: 1}
}

func (f *fixture) swapped(swaps ...store.PlanSwap) {
	f.Helper()
	results, _, _, err := f.SwapPlans(f.ctx, store.ShardOf(swaps[0].Key, f.Shards()), swaps, store.SwapClaim{})
	f.NoError(err)
	f.Equal(slices.Repeat([]store.SwapResult{store.Swapped}, len(swaps)), results)
}

// planCalls are the calls that read a plan.
var planCalls = map[string]func(f *fixture, ctx context.Context, p store.PlanSwap, leases []store.Lease) error{
	"end": func(f *fixture, ctx context.Context, _ store.PlanSwap, leases []store.Lease) error {
		_, _, err := f.End(ctx, 0, []store.Outcome{{Holder: leases[0].Holder, Kind: store.DeadLetter}, {Holder: leases[1].Holder, Kind: store.Done}})
		return err
	},
	"cancel": func(f *fixture, ctx context.Context, p store.PlanSwap, _ []store.Lease) error {
		_, err := f.Cancel(ctx, 0, []string{p.Entries[20].Key})
		return err
	},
	"claim": func(f *fixture, ctx context.Context, _ store.PlanSwap, _ []store.Lease) error {
		c := newClaim(1)
		c.MaxAttempts, c.Plans = 1, 1
		_, _, err := f.Claim(ctx, 0, c)
		return err
	},
	"swap": func(f *fixture, ctx context.Context, p store.PlanSwap, _ []store.Lease) error {
		next := planOf("s")
		next.Expected, next.Entries = p.ID, p.Entries
		_, _, _, err := f.SwapPlans(ctx, 0, []store.PlanSwap{next}, store.SwapClaim{})
		return err
	},
}

// planState returns the visible state of the plan, its occurrences and the shard.
func (f *fixture) planState(p store.PlanSwap) (all []any) {
	f.Helper()
	for _, key := range []string{p.Key, p.Entries[38].Key, p.Entries[39].Key, p.Entries[20].Key, store.PlanKey("fill0000")} {
		r, err := f.Get(f.ctx, 0, key)
		f.NoError(err)
		all = append(all, r)
	}
	st, err := f.Stats(f.ctx, 0)
	f.NoError(err)
	return append(all, st)
}

// A call whose read of a plan fails changes nothing, whichever read it is.
func TestReadOfAPlanFails(t *testing.T) {
	t.Parallel()
	for name, call := range planCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := &failingRead{}
			f, p, leases := planOnDisk(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, reads) })
			failed := 0
			for err := errors.New("none yet"); err != nil; reads.at++ {
				f.NoError(f.Store.Close())
				f.open()
				reads.n.Store(0)
				reads.armed.Store(true)
				err = call(f, f.ctx, p, leases)
				reads.armed.Store(false)
				if err == nil {
					break
				}
				failed++
				f.ErrorIs(err, syscall.EIO)
				f.NotErrorIs(err, store.ErrUnsure)
				verify(t, f.Store)
				for _, r := range f.planState(p)[:1] {
					f.Zero(r.(store.Record).History.Ended())
					f.Equal(p.ID, r.(store.Record).ID)
					f.Equal(store.MaxMillis, r.(store.Record).Due)
				}
				f.Equal(2, f.planState(p)[5].(store.Stats).Leased)
			}
			f.GreaterOrEqual(failed, 2)
			verify(t, f.Store)
			f.NotEqual(store.MaxMillis, f.get(p.Key).Due)
		})
	}
}

// A call whose ctx ends while it reads a plan changes nothing.
func TestCtxEndsDuringAReadOfAPlan(t *testing.T) {
	t.Parallel()
	for name, call := range planCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := &onRead{}
			f, p, leases := planOnDisk(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, reads) })
			f.NoError(f.Store.Close())
			f.open()
			ctx, cancel := context.WithCancel(f.ctx)
			end := func() { cancel() }
			reads.f.Store(&end)
			f.ErrorIs(call(f, ctx, p, leases), context.Canceled)
			verify(t, f.Store)
			r := f.get(p.Key)
			f.Equal(p.ID, r.ID)
			f.Zero(r.History.Ended())
			f.Equal(store.Waiting, r.State)
		})
	}
}

// The fsync of a swap fails: the caller gets ErrUnsure, and after a power failure the plan is as
// before, with none of the occurrences.
func TestFailedSyncOfASwap(t *testing.T) {
	faults := &faulty{at: -1, err: syscall.EIO, match: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	}}
	f := newFixture(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, faults); o.Shards = 1 })
	p := planOf("s")
	f.swapped(p)
	next := planOf("s")
	next.Expected, next.Entries = p.ID, []store.Entry{entry(p.Key+"1", 10)}
	faults.at = faults.n.Load()
	_, _, _, err := f.SwapPlans(f.ctx, 0, []store.PlanSwap{next}, store.SwapClaim{})
	f.ErrorIs(err, store.ErrUnsure)
	f.ErrorIs(err, syscall.EIO)
	_, err = f.Plans(f.ctx, 0, "", 1)
	f.ErrorIs(err, store.ErrClosed)
	faults.at = -1
	f.crash()
	f.Equal(p.ID, f.get(p.Key).ID)
	_, err = f.Get(f.ctx, 0, next.Entries[0].Key)
	f.ErrorIs(err, store.ErrNotFound)
	verify(t, f.Store)
	f.swapped(next)
}

// The front of the lane of plans follows claims, swaps and wakes. A plan that wakes in a claim
// leaves the position of the claim's iterator.
func TestFrontOfPlansFollows(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Shards = 1 })
	now := store.Millis(f.clock.Now().UnixMilli())
	for i := range 30 {
		p := planOf(fmt.Sprint("p", i))
		p.Due = store.Millis(1 + i)
		f.swapped(p)
	}
	sleeper := planOf("sleeper")
	sleeper.Due, sleeper.Wake, sleeper.Entries = now+1000, store.WakeOnDead, []store.Entry{entry(store.PlanKey("sleeper")+"1", 0)}
	later := planOf("later")
	later.Due = now + 1_000_000
	f.swapped(sleeper, later)
	c := newClaim(1)
	c.Plans, c.Lease = 29, time.Hour
	claimed, h, err := f.Claim(f.ctx, 0, c)
	f.NoError(err)
	f.Len(claimed.Leases, 30)
	f.Equal(store.Millis(30), h.NextDue)
	verify(t, f.Store)
	for _, l := range claimed.Leases[:28] {
		f.swapped(store.PlanSwap{Key: l.Key, Expected: l.ID})
	}

	// In this claim the lease of the sleeper's occurrence has expired: it is the third plan.
	f.end(claimed.Leases[28], store.Release)
	f.clock.Advance(500 * time.Millisecond)
	_, _, err = f.Extend(f.ctx, 0, []store.Holder{claimed.Leases[29].Holder}, store.MinLease)
	f.NoError(err)
	f.clock.Advance(100 * time.Millisecond)
	c = newClaim(1)
	c.Plans, c.MaxAttempts = 10, 1
	claimed, h, err = f.Claim(f.ctx, 0, c)
	f.NoError(err)
	f.Equal(1, claimed.DeadLettered)
	f.Len(claimed.Leases, 3)
	f.Equal([]any{sleeper.Key, now + 600, uint64(1)}, []any{claimed.Leases[2].Key, claimed.Leases[2].Due, claimed.Leases[2].History.Dead})
	f.Equal(later.Due, h.NextDue)
	verify(t, f.Store)
	f.crash()
	verify(t, f.Store)
	f.Equal(h.NextDue, f.shards[0].next)
}

// Many expired leases of plans do not delay those of timers, in a claim that asks for no plans.
func TestLeasesOfPlansHoldUpNoTimers(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Shards = 1 })
	for i := range 2 {
		var swaps []store.PlanSwap
		for j := range store.MaxItems {
			swaps = append(swaps, planOf(fmt.Sprint(i, "-", j)))
		}
		f.swapped(swaps...)
		c := newClaim(1)
		c.Plans = store.MaxItems
		claimed, _, err := f.Claim(f.ctx, 0, c)
		f.NoError(err)
		f.Len(claimed.Leases, store.MaxItems)
	}
	f.clock.Advance(time.Second)
	f.put(entry("a", 0))
	f.Len(f.claim(0, 1), 1)
	f.clock.Advance(time.Minute)
	leases := f.claim(0, 10)
	f.Len(leases, 1)
	f.Equal("a", leases[0].Key)
	verify(t, f.Store)
}

// The calls that change timers refuse the keys of plans, and SwapPlans refuses all others.
func TestKeysOfPlansAreRefused(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Shards = 1 })
	p := planOf("s")
	f.swapped(p)
	for name, err := range map[string]error{
		"schedule":   third(f.Schedule(f.ctx, 0, []store.Entry{{Key: p.Key}})),
		"cancel":     second(f.Cancel(f.ctx, 0, []string{p.Key})),
		"reschedule": third(f.Reschedule(f.ctx, 0, []store.Move{{Key: p.Key}})),
		"requeue":    third(f.Requeue(f.ctx, 0, []string{p.Key})),
		"purge":      second(f.Purge(f.ctx, 0, []string{p.Key})),
	} {
		f.ErrorContains(err, `"s\x00" is the key of a plan, which only SwapPlans changes`, name)
	}
	f.ErrorContains(third(f.End(f.ctx, 0, []store.Outcome{{Holder: store.Holder{Key: p.Key}, Kind: store.DeadLetter}})), "does not become a dead letter")
	f.ErrorContains(fourth(f.SwapPlans(f.ctx, 0, []store.PlanSwap{{Key: "s", ID: store.NewID()}}, store.SwapClaim{})), `"s" is not the key of a plan`)
	p.Entries = []store.Entry{entry("s\x00", 0)}
	f.ErrorContains(fourth(f.SwapPlans(f.ctx, 0, []store.PlanSwap{p}, store.SwapClaim{})), `is not the key of an occurrence of "s\x00"`)
	f.ErrorContains(second(f.Plans(f.ctx, 0, "", 501)), "the limit is 501, must be 1 to 500")
	f.Equal(store.Waiting, f.get(p.Key).State)
}

func third[T, U any](_ T, _ U, err error) error { return err }

func fourth[T, U, V any](_ T, _ U, _ V, err error) error { return err }

// With little free space on the disk a plan can be changed and removed, and nothing can be added.
func TestLittleFreeSpaceForPlans(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MinFree, o.Shards = 1000, 1 })
	p := planOf("s")
	f.swapped(p)
	f.fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 1, UsedBytes: 1})
	f.freeSpace.checked = time.Time{}
	more, change := planOf("s"), planOf("s")
	more.Expected, more.Entries, change.Expected = p.ID, []store.Entry{entry(p.Key+"1", 0)}, p.ID
	f.ErrorIs(fourth(f.SwapPlans(f.ctx, 0, []store.PlanSwap{planOf("t")}, store.SwapClaim{})), store.ErrFull)
	f.ErrorIs(fourth(f.SwapPlans(f.ctx, 0, []store.PlanSwap{more}, store.SwapClaim{})), store.ErrFull)
	f.swapped(change)
	f.swapped(store.PlanSwap{Key: p.Key, Expected: change.ID})
}

// A caller may change the arguments of SwapPlans, and the results of Plans: the store has copies.
func TestPlansAreCopied(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Shards = 1 })
	p := planOf("s")
	p.Body, p.Entries = bodyOf(p.ID, 20), []store.Entry{entry(p.Key+"1", 20)}
	f.swapped(p)
	clear(p.Body)
	clear(p.Entries[0].Body)
	page, err := f.Plans(f.ctx, 0, "", 1)
	f.NoError(err)
	clear(page[0].Body)
	f.Equal(bodyOf(p.ID, 20), f.get(p.Key).Body)
	f.Equal(bodyOf(p.Entries[0].ID, 20), f.get(p.Entries[0].Key).Body)
}

// Timers that are not occurrences never read a plan.
func TestPlainTimersReadNoPlans(t *testing.T) {
	f := newFixture(t)
	f.put(entry(keyIn(0, 0), 10), entry(keyIn(0, 1), 10))
	for _, l := range f.claim(0, 1) {
		_, _, err := call(f.ctx, f.Store, 0, writes, func(c *change) (bool, error) {
			e := store.Outcome{Holder: l.Holder, Kind: store.Done}
			f.NoError(c.readEnd(e))
			f.Equal(store.Ended, c.end(e))
			f.Empty(c.timers)
			f.Nil(c.plans)
			return true, nil
		})
		f.NoError(err)
	}
	verify(t, f.Store)
}

// A plan's record is small, and a damaged one is an error.
func TestPlanRecords(t *testing.T) {
	p := &plan{key: store.PlanKey("s"), wake: store.WakeOnDead}
	require.LessOrEqual(t, len(appendPlan(nil, p)), 5)
	for i := range 2 * store.MaxNotes {
		p.history.Add(store.Note{
			Key: fmt.Sprintf("%s%013d", p.key, i), Outcome: store.OccurrenceOutcome(1 + i%3), Begun: 1_700_000_000_000, Ended: 1_700_000_000_001, Attempts: 2,
		})
	}
	v := appendPlan(nil, p)
	require.LessOrEqual(t, len(v), 5+store.MaxNotes*30)
	back, err := decodePlan(p.key, v)
	require.NoError(t, err)
	require.Equal(t, p, back)
	for i := range v {
		_, err := decodePlan(p.key, v[:i])
		require.ErrorIs(t, err, errRecord)
	}
	_, err = decodePlan(p.key, append(v, 0))
	require.ErrorIs(t, err, errRecord)
}
