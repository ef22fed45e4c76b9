package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// fixture is a test and its store. Its calls fail the test if the store returns an error, and check
// each reply's horizon.
type fixture struct {
	testing.TB
	*require.Assertions
	engine Engine
	*Instance
	ctx  context.Context
	keys map[string]bool // all scheduled keys
	held []store.Holder  // the holders of all claims
}

func newFixture(t testing.TB, e Engine) *fixture {
	return &fixture{TB: t, Assertions: require.New(t), engine: e, ctx: t.Context(), keys: map[string]bool{}}
}

func (f *fixture) open(o Options) {
	f.Helper()
	f.Instance = f.engine.Open(f.TB, o)
	f.Equal(o.Shards, f.Store.Shards())
}

// check runs body on a store of one shard, verifies it, empties it, and checks that nothing is
// left.
func check(body func(*fixture)) func(*fixture) { return checkWith(Options{Shards: 1}, body) }

func checkWith(o Options, body func(*fixture)) func(*fixture) {
	return func(f *fixture) {
		f.open(o)
		body(f)
		f.verify()
		f.drain()
	}
}

// entry is an overdue timer, with a body that contains its key.
func entry(key string) store.Entry {
	return store.Entry{Key: key, ID: store.NewID(), Topic: "topic", Body: []byte("body of " + key), At: 1}
}

func (f *fixture) shardOf(key string) int { return store.ShardOf(key, f.Store.Shards()) }

// schedule schedules entries, which are of one shard, in one call.
func (f *fixture) schedule(entries ...store.Entry) []store.Receipt {
	f.Helper()
	n := f.shardOf(entries[0].Key)
	receipts, h, err := f.Store.Schedule(f.ctx, n, entries)
	f.NoError(err)
	f.Len(receipts, len(entries))
	for _, e := range entries {
		f.keys[e.Key] = true
	}
	f.checkHorizon(n, h)
	return receipts
}

// put schedules one entry, and returns its receipt.
func (f *fixture) put(e store.Entry) store.Receipt {
	f.Helper()
	return f.schedule(e)[0]
}

// putAll schedules overdue timers, the first of them due first.
func (f *fixture) putAll(keys ...string) {
	f.Helper()
	for i, key := range keys {
		e := entry(key)
		e.At = store.Millis(i + 1)
		f.Equal(store.Created, f.put(e).Kind)
	}
}

func (f *fixture) cancel(keys ...string) []store.CancelResult {
	f.Helper()
	results, err := f.Store.Cancel(f.ctx, f.shardOf(keys[0]), keys)
	f.NoError(err)
	f.Len(results, len(keys))
	return results
}

func (f *fixture) reschedule(moves ...store.Move) []store.MoveResult {
	f.Helper()
	n := f.shardOf(moves[0].Key)
	results, h, err := f.Store.Reschedule(f.ctx, n, moves)
	f.NoError(err)
	f.Len(results, len(moves))
	f.checkHorizon(n, h)
	return results
}

func (f *fixture) requeue(keys ...string) []store.RequeueResult {
	f.Helper()
	n := f.shardOf(keys[0])
	results, h, err := f.Store.Requeue(f.ctx, n, keys)
	f.NoError(err)
	f.Len(results, len(keys))
	f.checkHorizon(n, h)
	return results
}

func (f *fixture) purge(keys ...string) int {
	f.Helper()
	n, err := f.Store.Purge(f.ctx, f.shardOf(keys[0]), keys)
	f.NoError(err)
	return n
}

const (
	testLease    = 10 * time.Second
	testAttempts = 3
)

// newClaim is a claim of shard 0 with capacity for max.
func newClaim(max int) store.Claim {
	return store.Claim{
		Worker: "worker", Token: store.NewToken("worker"), Max: max, MaxBytes: store.MaxClaim,
		Lease: testLease, MaxAttempts: testAttempts,
	}
}

func (f *fixture) claimWith(n int, c store.Claim) (store.Claimed, store.Horizon) {
	f.Helper()
	claimed, h, err := f.Store.Claim(f.ctx, n, c)
	f.NoError(err)
	f.LessOrEqual(len(claimed.Leases), c.Max+c.Plans)
	f.Zero(claimed.Repaired, "D1: the claim has repaired entries")
	for _, l := range claimed.Leases {
		f.held = append(f.held, l.Holder)
		f.Equal(c.Token, l.Token)
	}
	f.checkHorizon(n, h)
	return claimed, h
}

// claim claims in shard 0, and returns the leases by due time.
func (f *fixture) claim(max int) []store.Lease {
	f.Helper()
	claimed, _ := f.claimWith(0, newClaim(max))
	return byDueTime(claimed.Leases)
}

// claimOne claims in shard 0, and checks that the result is the one timer key.
func (f *fixture) claimOne(key string) store.Lease {
	f.Helper()
	leases := f.claim(1)
	f.Equal([]string{key}, keysOf(leases))
	return leases[0]
}

func byDueTime(leases []store.Lease) []store.Lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b store.Lease) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Key, b.Key))
	})
}

func keysOf(leases []store.Lease) []string {
	keys := make([]string, len(leases))
	for i, l := range leases {
		keys[i] = l.Key
	}
	return keys
}

func (f *fixture) end(e store.Outcome) store.EndResult {
	f.Helper()
	n := f.shardOf(e.Key)
	results, h, err := f.Store.End(f.ctx, n, []store.Outcome{e})
	f.NoError(err)
	f.Len(results, 1)
	f.checkHorizon(n, h)
	return results[0]
}

// ended ends a run, and checks that its lease was not lost.
func (f *fixture) ended(l store.Lease, kind store.OutcomeKind) {
	f.Helper()
	want := store.Ended
	if r := f.get(l.Key); r.Cancelled {
		want = store.EndCancelled
	} else if r.SuccessorDue != 0 {
		want = store.EndReplaced
	}
	f.Equal(want, f.end(store.Outcome{Holder: l.Holder, Kind: kind, Error: "error of " + l.Key}))
}

func (f *fixture) extend(h store.Holder, lease time.Duration) (store.ExtendResult, store.Millis) {
	f.Helper()
	results, end, err := f.Store.Extend(f.ctx, f.shardOf(h.Key), []store.Holder{h}, lease)
	f.NoError(err)
	f.Len(results, 1)
	return results[0], end
}

// get returns a record, the zero one if there is none.
func (f *fixture) get(key string) store.Record {
	f.Helper()
	r, err := f.Store.Get(f.ctx, f.shardOf(key), key)
	if errors.Is(err, store.ErrNotFound) {
		return store.Record{}
	}
	f.NoError(err)
	f.Equal(key, r.Key)
	return r
}

// absent fails the test if any of the keys exists.
func (f *fixture) absent(keys ...string) {
	f.Helper()
	for _, key := range keys {
		_, err := f.Store.Get(f.ctx, f.shardOf(key), key)
		f.ErrorIs(err, store.ErrNotFound)
	}
}

func (f *fixture) stats(n int) store.Stats {
	f.Helper()
	st, err := f.Store.Stats(f.ctx, n)
	f.NoError(err)
	return st
}

func (f *fixture) readHorizon(n int) store.Horizon {
	f.Helper()
	hs, err := f.Store.Horizons(f.ctx, []int{n})
	f.NoError(err)
	f.Len(hs, 1)
	return hs[0]
}

// checkHorizon compares a reply's horizon with that of a later call of Horizons.
func (f *fixture) checkHorizon(n int, h store.Horizon) {
	f.Helper()
	want := f.readHorizon(n)
	f.LessOrEqual(h.Now, want.Now, "the engine's clock goes back")
	h.Now = want.Now
	f.Equal(want, h, "the reply's horizon is not that of the shard")
}

// advance moves the engine's clock.
func (f *fixture) advance(d time.Duration) {
	f.Helper()
	if f.Advance == nil {
		f.Skip("the engine's clock cannot be moved")
	}
	f.Advance(d)
}

// counted fails the test unless due is d after the time of a call that was made between the
// horizons before and after: to the millisecond if the clock is frozen.
func (f *fixture) counted(due store.Millis, d time.Duration, before, after store.Horizon) {
	f.Helper()
	if f.Frozen {
		f.Equal(before.Now+store.MillisOf(d), due)
		return
	}
	f.GreaterOrEqual(due, before.Now+store.MillisOf(d))
	f.LessOrEqual(due, after.Now+1+store.MillisOf(d))
}

// list lists timers, limit at a time.
func (f *fixture) list(n int, state store.State, limit int) []store.Record {
	f.Helper()
	return f.query(n, store.Query{State: state, Limit: limit})
}

// query reads all pages from the first on.
func (f *fixture) query(n int, q store.Query) []store.Record {
	f.Helper()
	var records []store.Record
	for {
		page, err := f.Store.List(f.ctx, n, q)
		f.NoError(err)
		f.LessOrEqual(len(page.Records), q.Limit)
		for _, r := range page.Records {
			f.Equal(q.State, r.State)
			f.Positive(cmp.Or(cmp.Compare(r.At(), q.After.At), cmp.Compare(r.Key, q.After.Key)), "%q is out of order", r.Key)
			q.After = store.Cursor{At: r.At(), Key: r.Key}
		}
		records = append(records, page.Records...)
		if !page.More {
			return records
		}
		f.GreaterOrEqual(cmp.Or(cmp.Compare(page.Next.At, q.After.At), cmp.Compare(page.Next.Key, q.After.Key)), 0, "a page ends before its last record")
		q.After = page.Next
	}
}

// verify checks D1: each key that the test scheduled is in at most one state, and Stats, List and
// Get agree.
func (f *fixture) verify() {
	f.Helper()
	for n := range f.Store.Shards() {
		f.verifyShard(n)
	}
}

func (f *fixture) verifyShard(n int) {
	f.Helper()
	st := f.stats(n)
	listed := map[string]bool{}
	var want store.Stats
	for state := store.Waiting; state <= store.Dead; state++ {
		for _, r := range f.list(n, state, store.MaxItems) {
			f.False(listed[r.Key], "D1: %q is in two states", r.Key)
			listed[r.Key] = true
			switch state {
			case store.Dead:
				want.Dead++
			case store.Leased:
				want.Leased++
				want.NextLeaseEnd = oracle.Earlier(want.NextLeaseEnd, r.LeaseEnd)
			case store.Waiting:
				want.NextDue = oracle.Earlier(want.NextDue, r.Due)
				want.Waiting++
				if r.Due <= st.Now {
					want.Overdue++
				}
			}
			f.Nil(r.Body)
			full := f.get(r.Key)
			full.Body = nil
			f.Equal(full, r, "Get and List differ")
		}
	}
	for key := range f.keys {
		if f.shardOf(key) != n || listed[key] {
			continue
		}
		r := f.get(key)
		if store.IsPlan(key) && r.State != 0 {
			want.Plans++
			f.NotNil(r.History)
			if r.State == store.Waiting {
				want.NextDue = oracle.Earlier(want.NextDue, r.Due)
				if r.Due <= st.Now {
					want.PlansOverdue++
				}
				continue
			}
		}
		if r.State == store.Leased && store.IsPlan(key) {
			want.Leased++
			want.NextLeaseEnd = oracle.Earlier(want.NextLeaseEnd, r.LeaseEnd)
		} else {
			f.Zero(r.State, "D1: %q is in no list", key)
		}
	}
	f.Len(f.plans(n, store.MaxItems), want.Plans)
	want.Now, want.Dropped, want.Scheduled = st.Now, st.Dropped, st.Scheduled
	f.Equal(want, st, "D1: Stats differs from the listed timers")
}

// drain ends all timers, and checks D10: nothing is left.
func (f *fixture) drain() {
	f.Helper()
	keys := slices.Sorted(maps.Keys(f.keys))
	keys = slices.DeleteFunc(keys, store.IsPlan)
	for n := range f.Store.Shards() {
		for _, r := range f.plans(n, store.MaxItems) {
			f.swapped(store.PlanSwap{Key: r.Key, Expected: r.ID})
		}
	}
	f.batches(keys, func(n int, keys []string) {
		_, err := f.Store.Cancel(f.ctx, n, keys)
		f.NoError(err)
		_, err = f.Store.Purge(f.ctx, n, keys)
		f.NoError(err)
	})
	holders := map[string][]store.Holder{}
	for _, h := range f.held {
		holders[h.Key] = append(holders[h.Key], h)
	}
	f.batches(slices.Sorted(maps.Keys(holders)), func(n int, keys []string) {
		var outcomes []store.Outcome
		for _, key := range keys {
			for _, h := range holders[key] {
				outcomes = append(outcomes, store.Outcome{Holder: h, Kind: store.Done})
			}
		}
		for batch := range slices.Chunk(outcomes, store.MaxItems) {
			_, _, err := f.Store.End(f.ctx, n, batch)
			f.NoError(err)
		}
	})
	f.empty()
}

// batches calls do with keys of one shard, at most MaxItems at once.
func (f *fixture) batches(keys []string, do func(n int, keys []string)) {
	f.Helper()
	byShard := make([][]string, f.Store.Shards())
	for _, key := range keys {
		n := f.shardOf(key)
		byShard[n] = append(byShard[n], key)
	}
	for n, keys := range byShard {
		for batch := range slices.Chunk(keys, store.MaxItems) {
			do(n, batch)
		}
	}
}

// empty checks D10: there is no timer, and nothing else is left.
func (f *fixture) empty() {
	f.Helper()
	for n := range f.Store.Shards() {
		st := f.stats(n)
		st.Now, st.Dropped, st.Scheduled = 0, 0, 0
		f.Zero(st, "shard %d is not empty", n)
	}
	if f.Left != nil {
		f.Empty(f.Left(f.TB), "D10: the engine still has keys")
	}
}

func name(prefix string, i int) string { return fmt.Sprintf("%s%04d", prefix, i) }
