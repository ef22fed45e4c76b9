package memstore

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/storetest"
)

// clock is a clock that tests set.
type clock struct {
	mu    sync.Mutex
	start func() time.Time
	moved time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start().Add(c.moved)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved += d
}

func open(t testing.TB, o Options) *oracle.Store {
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s.(*oracle.Store)
}

// engine has a clock that counts from start. Reopening changes nothing, except that leases have
// expired if leasesEnd is set.
func engine(start func() time.Time, frozen, leasesEnd bool) storetest.Engine {
	return storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		c := &clock{start: start}
		s := open(t, Options{Shards: o.Shards, Limits: o.Limits, Now: c.now})
		return &storetest.Instance{
			Store: s, Advance: c.advance, Frozen: frozen, LeasesEnd: leasesEnd,
			Reopen: func(testing.TB) store.Store {
				if leasesEnd {
					s.Restart()
				}
				return s
			},
			Left: func(testing.TB) (left []string) {
				for _, part := range s.Parts {
					for key := range part.Timers {
						left = append(left, key)
					}
				}
				return left
			},
		}
	}}
}

func frozenTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestSuite(t *testing.T) {
	for name, e := range map[string]storetest.Engine{
		"frozen":                  engine(frozenTime, true, false),
		"leases end on reopening": engine(frozenTime, true, true),
		"running":                 engine(time.Now, false, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, e)
		})
	}
}

// An engine need not implement more than store.Store.
func TestSuiteOfAStoreAlone(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		return &storetest.Instance{Store: open(t, Options{Shards: o.Shards, Limits: o.Limits})}
	}})
}

func FuzzStore(f *testing.F) { storetest.Fuzz(f, engine(frozenTime, true, true)) }

func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Shards: 1})
		ctx := t.Context()
		var events []store.Event
		go func() { _ = s.Subscribe(ctx, func(e store.Event) { events = append(events, e) }) }()
		synctest.Wait()
		_, h, err := s.Schedule(ctx, 0, []store.Entry{{Key: "a", ID: store.NewID(), After: time.Hour}})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []store.Event{{Kind: store.Gap}, {Kind: store.Earlier, Due: h.NextDue}}, events)
		for _, leases := range []int{0, 1} {
			time.Sleep(time.Hour - 1 + time.Duration(leases)*(2-time.Hour))
			claimed, _, err := s.Claim(ctx, 0, claim())
			require.NoError(t, err)
			require.Len(t, claimed.Leases, leases)
		}
	})
}

func claim() store.Claim {
	return store.Claim{Worker: "worker", Token: store.NewToken("worker"), Max: 1, MaxBytes: store.MaxClaim, Lease: time.Second, MaxAttempts: 1}
}

// Engines may rely on their callers; this one is for tests, and reports violations.
func TestBrokenCallsAreRefused(t *testing.T) {
	ctx := t.Context()
	s := open(t, Options{Shards: 2})
	const key = "a"
	n := store.ShardOf(key, 2)
	errors := map[string]error{}
	_, _, errors["is of shard"] = s.Schedule(ctx, 1-n, []store.Entry{{Key: key}})
	_, errors["a call has 501 items, must be at most 500"] = s.Purge(ctx, n, make([]string, 501))
	_, errors["shard is 2, must be 0 to 1"] = s.Cancel(ctx, 2, nil)
	_, _, errors["a timer's key is 0 bytes long"] = s.Requeue(ctx, n, []string{""})
	_, _, errors["is due at -1 ms"] = s.Reschedule(ctx, n, []store.Move{{Key: key, At: -1}})
	_, _, errors["Claim.Max is 0"] = s.Claim(ctx, n, store.Claim{Worker: "w"})
	_, _, errors["lease is 1ns, must be 100ms to 24h0m0s"] = s.Extend(ctx, n, nil, 1)
	_, _, errors["Outcome.Kind is OutcomeKind(0)"] = s.End(ctx, n, []store.Outcome{{}})
	_, errors["durable: Query.Limit is 501, must be 1 to 500"] = s.List(ctx, n, store.Query{State: store.Waiting, Limit: 501})
	_, errors["a worker's name is 0 bytes long, must be 1 to 128"] = s.Heartbeat(ctx, store.Heartbeat{})
	_, errors["Options.Shards is 1025, must be 1 to 1024"] = New(Options{Shards: 1025})
	_, errors["Limits.MaxDead is -1"] = New(Options{Limits: store.Limits{MaxDead: -1}})
	for want, err := range errors {
		require.ErrorContains(t, err, want)
	}
}
