package storetest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// oracles is the Oracle as an engine; broken, if it is not nil, breaks it. Reopening
// changes nothing, but that leases have run out if leasesEnd.
func oracles(leasesEnd bool, broken func(*Oracle) store.Store) Engine {
	return Engine{Open: func(t testing.TB, o Options) *Instance {
		c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		oracle := NewOracle(o.Shards, o.Limits, c.read)
		t.Cleanup(func() { _ = oracle.Close() })
		in := &Instance{Store: oracle, Advance: c.advance, Frozen: true, LeasesEnd: leasesEnd}
		if broken != nil {
			in.Store = broken(oracle)
		}
		r, _ := in.Store.(*rigged)
		in.Reopen = func(testing.TB) store.Store {
			if leasesEnd {
				oracle.endLeases()
			}
			if r != nil && r.reopen != nil {
				r.reopen()
			}
			return in.Store
		}
		in.Left = func(testing.TB) (left []string) {
			for _, s := range oracle.shards {
				for key := range s.timers {
					left = append(left, key)
				}
			}
			if r != nil && r.left != nil {
				left = append(left, r.left()...)
			}
			return left
		}
		return in
	}}
}

func TestOracle(t *testing.T) {
	t.Parallel()
	Run(t, oracles(false, nil))
}

func TestOracleWhoseLeasesEnd(t *testing.T) {
	t.Parallel()
	Run(t, oracles(true, nil))
}

// The real clock, which is not frozen, and cannot be moved.
func TestOracleInRealTime(t *testing.T) {
	t.Parallel()
	Run(t, Engine{Open: func(t testing.TB, o Options) *Instance {
		oracle := NewOracle(o.Shards, o.Limits, nil)
		t.Cleanup(func() { _ = oracle.Close() })
		return &Instance{Store: oracle}
	}})
}

// The real clock and a part that can be moved, as a server's.
func TestOracleWithOffset(t *testing.T) {
	t.Parallel()
	Run(t, Engine{Open: func(t testing.TB, o Options) *Instance {
		c := &clock{}
		oracle := NewOracle(o.Shards, o.Limits, func() time.Time { return time.Now().Add(c.read().Sub(time.Time{})) })
		t.Cleanup(func() { _ = oracle.Close() })
		return &Instance{Store: oracle, Advance: c.advance, Reopen: func(testing.TB) store.Store { return oracle }}
	}})
}

func FuzzStore(f *testing.F) { Fuzz(f, oracles(true, nil)) }

func TestOracleInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOracle(1, store.Limits{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var events []store.Event
		go func() { _ = o.Subscribe(ctx, func(e store.Event) { events = append(events, e) }) }()
		synctest.Wait()
		e := entry("a")
		e.At, e.After = 0, time.Hour
		_, h, err := o.Schedule(ctx, 0, []store.Entry{e})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []store.Event{{Kind: store.Gap}, {Kind: store.Earlier, Due: h.NextDue}}, events)
		time.Sleep(time.Hour - 1)
		claimed, _, err := o.Claim(ctx, 0, newClaim(1))
		require.NoError(t, err)
		require.Empty(t, claimed.Leases)
		time.Sleep(1)
		claimed, _, err = o.Claim(ctx, 0, newClaim(1))
		require.NoError(t, err)
		require.Len(t, claimed.Leases, 1)
		cancel()
		synctest.Wait()
	})
}

func TestOracleRefusesWhatCallersBreak(t *testing.T) {
	ctx := t.Context()
	o := NewOracle(2, store.Limits{}, nil)
	key := "a"
	n := store.ShardOf(key, 2)
	errors := map[string]error{}
	_, _, errors["is of shard"] = o.Schedule(ctx, 1-n, []store.Entry{entry(key)})
	_, _, errors["a call has 501 items, must be at most 500"] = o.Schedule(ctx, n, make501())
	_, errors["shard is 2, must be 0 to 1"] = o.Cancel(ctx, 2, nil)
	_, _, errors["a timer's key is 0 bytes long"] = o.Requeue(ctx, n, []string{""})
	_, _, errors["is due at -1 ms"] = o.Reschedule(ctx, n, []store.Move{{Key: key, At: -1}})
	_, _, errors["Claim.Max is 0"] = o.Claim(ctx, n, store.Claim{Worker: "w"})
	_, _, errors["lease is 1ns, must be 100ms to 24h0m0s"] = o.Extend(ctx, n, nil, 1)
	_, _, errors["End.Kind is EndKind(0)"] = o.End(ctx, n, []store.End{{}})
	_, errors["limit is 501, must be 1 to 500"] = o.Scan(ctx, n, store.Cursor{}, 501)
	_, errors["a worker's name is 0 bytes long, must be 1 to 128"] = o.Sign(ctx, "", 0)
	for want, err := range errors {
		require.ErrorContains(t, err, want)
	}
	require.PanicsWithValue(t, "storetest: shards is 0, must be 1 to 1024", func() { NewOracle(0, store.Limits{}, nil) })
	require.Panics(t, func() { NewOracle(1, store.Limits{MaxDead: -1}, nil) })
}

func make501() []store.Entry {
	entries := make([]store.Entry, store.MaxItems+1)
	for i := range entries {
		entries[i] = entry("a")
	}
	return entries
}
