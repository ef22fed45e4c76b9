package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

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
