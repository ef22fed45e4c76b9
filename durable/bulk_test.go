package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// addMany schedules timers named prefix-00000 and so on, due an hour ahead, a millisecond apart.
func (r *rig) addMany(prefix, topic string, n int) (keys []string) {
	r.t.Helper()
	var all []Timer
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s-%05d", prefix, i))
		all = append(all, Timer{Key: keys[i], Topic: topic, After: time.Hour + time.Duration(i)*time.Millisecond})
	}
	for batch := range slices.Chunk(all, store.MaxItems) {
		_, err := r.timers.ScheduleMany(context.Background(), batch)
		require.NoError(r.t, err)
	}
	return keys
}

// bulk runs an action to its end, and returns the last progress.
func (r *rig) bulk(b Bulk) (last BulkProgress) {
	r.t.Helper()
	for p, err := range r.timers.Bulk(context.Background(), b) {
		require.NoError(r.t, err)
		require.GreaterOrEqual(r.t, p.Changed, last.Changed)
		require.GreaterOrEqual(r.t, p.ShardsDone, last.ShardsDone)
		require.LessOrEqual(r.t, p.Changed-last.Changed, store.MaxItems)
		last = p
	}
	require.Equal(r.t, last.Shards, last.ShardsDone)
	require.Empty(r.t, last.Resume)
	return last
}

func (r *rig) count(q Query) int {
	r.t.Helper()
	n, err := r.timers.Count(context.Background(), q)
	require.NoError(r.t, err)
	return n
}

func TestBulkCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, store.Limits{}, 0)
		r.addMany("order", "orders", 3000)
		r.addMany("mail", "mails", 700)
		require.Equal(t, 3700, r.count(Query{}))
		require.Equal(t, 1000, r.count(Query{Filter: Filter{Prefix: "order-01"}}))
		require.Equal(t, 1000, r.bulk(Bulk{Action: BulkCancel, Filter: Filter{Prefix: "order-01"}}).Changed)
		require.Zero(t, r.count(Query{Filter: Filter{Prefix: "order-01"}}))
		require.Equal(t, 2000, r.bulk(Bulk{Action: BulkCancel, Filter: Filter{Topic: "orders"}}).Changed)
		require.Zero(t, r.bulk(Bulk{Action: BulkCancel, Filter: Filter{Error: "x"}}).Changed)
		require.Equal(t, 700, r.stats().Waiting)
		require.Equal(t, 700, r.bulk(Bulk{Action: BulkCancel}).Changed)
		require.Zero(t, r.stats().Waiting)
	})
}

// Bulk cancels running timers once each, even if their leases are extended.
func TestBulkCancelsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		r.worker(func(ctx context.Context, _ Fired) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, WorkerOptions{Concurrency: 100, Lease: time.Second})
		for i := range 20 {
			r.add(Timer{Key: fmt.Sprint("run", i)})
		}
		pass(100 * time.Millisecond)
		require.Equal(t, 20, r.count(Query{State: Leased}))
		require.Equal(t, 3, r.bulk(Bulk{Action: BulkCancel, State: Leased, Filter: Filter{Prefix: "run0"}}).Changed+
			r.bulk(Bulk{Action: BulkCancel, State: Leased, Filter: Filter{Prefix: "run7"}}).Changed+
			r.bulk(Bulk{Action: BulkCancel, State: Leased, Filter: Filter{Prefix: "run19"}}).Changed)
		pass(2 * time.Second)
		require.Equal(t, 17, r.count(Query{State: Leased}))
		require.Equal(t, 17, r.bulk(Bulk{Action: BulkCancel, State: Leased}).Changed)
		pass(2 * time.Second)
		require.Zero(t, r.stats().Leased)
	})
}

// Bulk meets timers again that it moved to a later time, and counts them once.
func TestBulkReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, store.Limits{}, 0)
		r.addMany("order", "orders", 2000)
		r.addMany("mail", "mails", 100)
		later := r.now().Add(90 * time.Minute).Truncate(time.Millisecond)
		require.Equal(t, 2000, r.bulk(Bulk{Action: BulkReset, Filter: Filter{Topic: "orders"}, At: later}).Changed)
		require.Equal(t, later, r.get("order-01999").Due)
		require.Zero(t, r.bulk(Bulk{Action: BulkReset, Filter: Filter{Topic: "orders"}, At: later}).Changed)
		now := r.now()
		require.Equal(t, 2100, r.bulk(Bulk{Action: BulkReset, After: 2 * time.Hour}).Changed)
		require.WithinDuration(t, now.Add(2*time.Hour), r.get("mail-00000").Due, 2*time.Millisecond)
		require.Equal(t, r.get("mail-00000").Due, r.get("order-00000").Due)
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		require.Equal(t, 100, r.bulk(Bulk{Action: BulkReset, Filter: Filter{Prefix: "mail"}}).Changed)
		pass(time.Second)
		require.Len(t, j.all(), 100)
	})
}

// deadOnes makes dead letters.
func (r *rig) deadOnes(n int) (dies *member) {
	r.t.Helper()
	r.addMany("dead", "dies", n)
	dies = r.worker(func(_ context.Context, f Fired) error {
		return Discard(fmt.Errorf("%s: Connection REFUSED", f.Key))
	}, WorkerOptions{Concurrency: 500})
	r.bulk(Bulk{Action: BulkReset, Filter: Filter{Topic: "dies"}})
	pass(5 * time.Second)
	require.Equal(r.t, n, r.stats().Dead)
	return dies
}

// A requeue ends even if the requeued timers die again at once. A purge does not remove dead
// letters that are newer than its start.
func TestBulkOfDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		dies := r.deadOnes(1500)
		require.Equal(t, 1500, r.count(Query{State: Dead, Filter: Filter{Error: "connection refused"}}))
		rounds := 0
		var last BulkProgress
		for p, err := range r.timers.Bulk(context.Background(), Bulk{Action: BulkRequeue, Filter: Filter{Error: "refused"}}) {
			require.NoError(t, err)
			last = p
			rounds++
			pass(time.Second)
		}
		require.Equal(t, 1500, last.Changed)
		require.Less(t, rounds, 10)
		require.Equal(t, 1500, r.stats().Dead)
		require.NoError(t, dies.stop())

		require.Equal(t, 100, r.bulk(Bulk{Action: BulkPurge, Filter: Filter{Prefix: "dead-010"}}).Changed)
		begun := false
		for p, err := range r.timers.Bulk(context.Background(), Bulk{Action: BulkPurge}) {
			require.NoError(t, err)
			if last = p; !begun { // a requeued timer dies again
				begun = true
				pass(time.Second)
			}
		}
		require.Equal(t, 1400, last.Changed)
		require.Zero(t, r.stats().Dead)
	})
}

// An action that an error or its caller ends can be resumed from the last reported progress.
func TestBulkIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, store.Limits{}, 0)
		r.addMany("order", "orders", 4000)
		b := Bulk{Action: BulkReset, Filter: Filter{Prefix: "order"}, After: 5 * time.Hour}
		calls, total, errs := 0, 0, 0
		r.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if calls++; calls%7 == 0 {
				return fmt.Errorf("%w: %w", store.ErrUnsure, errBoom)
			}
			return nil
		})
		for done := false; !done; {
			for p, err := range r.timers.Bulk(context.Background(), b) {
				if err != nil {
					require.ErrorIs(t, err, errBoom)
					errs++
				}
				b, total, done = Bulk{Resume: p.Resume}, p.Changed+p.Missed, err == nil && p.Resume == ""
				break // like a caller that is killed after each page
			}
			pass(time.Minute)
		}
		r.faults.fail(nil)
		require.Positive(t, errs)
		require.LessOrEqual(t, total, 4000, "what was changed without a reply is not counted")
		n := 0
		for info, err := range r.timers.List(context.Background(), Query{}) {
			require.NoError(t, err)
			require.Equal(t, r.get("order-03999").Due, info.Due)
			n++
		}
		require.Equal(t, 4000, n)
	})
}

// Timers that change between the list and the action count as missed, and are listed.
func TestBulkMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		r.addMany("order", "orders", 10)
		r.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "cancel" {
				_, err := r.engine.Cancel(context.Background(), 0, []string{"order-00003", "order-00007"})
				return err
			}
			return nil
		}, nil)
		p := r.bulk(Bulk{Action: BulkCancel})
		require.Equal(t, []any{8, 2, []string{"order-00003", "order-00007"}}, []any{p.Changed, p.Missed, p.MissedKeys})
	})
}

func TestBadBulks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		r.addMany("order", "orders", 10)
		for want, b := range map[string]Bulk{
			"durable: Bulk.Action is BulkAction(0), must be cancel, reset, requeue or purge":     {},
			"durable: Bulk.Action is BulkAction(9), must be cancel, reset, requeue or purge":     {Action: 9},
			"durable: Bulk.State is dead, must be waiting or leased for cancel":                  {Action: BulkCancel, State: Dead},
			"durable: Bulk.State is waiting, must be dead for purge":                             {Action: BulkPurge, State: Waiting},
			"durable: Bulk.State is leased, must be waiting for reset":                           {Action: BulkReset, State: Leased},
			"durable: Query.Prefix is 513 bytes long, must be at most 512":                       {Action: BulkCancel, Filter: Filter{Prefix: strings.Repeat("x", 513)}},
			"durable: Bulk.Resume is \"?\", must be what BulkProgress.Resume was":                {Resume: "?"},
			"durable: Bulk.Resume is set, all other fields must be zero":                         {Action: BulkCancel, Resume: "?"},
			"durable: Bulk.Resume is of a store with more shards":                                {Resume: (&bulkState{Action: BulkCancel, Shard: 2}).text()},
			"durable: Bulk.Resume is \"eyJTaGFyZCI6LTF9\", must be what BulkProgress.Resume was": {Resume: "eyJTaGFyZCI6LTF9"},
		} {
			n := 0
			for p, err := range r.timers.Bulk(context.Background(), b) {
				require.EqualError(t, err, want)
				require.Zero(t, p)
				n++
			}
			require.Equal(t, 1, n, want)
		}
		require.Equal(t, 10, r.stats().Waiting)
		_, err := r.timers.Count(context.Background(), Query{State: 9})
		require.Error(t, err)
		calls := 0
		r.faults.set(func(context.Context, string, int) error {
			if calls++; calls == 2 {
				return errBoom
			}
			return nil
		}, nil)
		n, err := r.timers.Count(context.Background(), Query{Filter: Filter{Prefix: "order"}})
		require.ErrorIs(t, err, errBoom)
		require.Positive(t, n)
		require.Less(t, n, 10, "those of the first shard")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errBoom)
		for _, err := range r.timers.Bulk(ctx, Bulk{Action: BulkCancel}) {
			require.True(t, errors.Is(err, errBoom))
		}
	})
}
