package pebblestore

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// D6: after reopening, all leases have expired: running timers are claimed at once, with a higher
// fence, even if the clock was set back.
func TestReopenedAllIsLeasedAgain(t *testing.T) {
	f := newFixture(t)
	a, b, c := keyIn(0, 0), keyIn(0, 1), keyIn(0, 2)
	f.put(entry(a, 10), entry(b, 1000), entry(c, 0))
	before := map[string]store.Lease{}
	last := uint64(0)
	for _, l := range f.claim(0, 3) {
		before[l.Key] = l
		f.Greater(l.Fence, last)
		last = l.Fence
	}
	f.Len(before, 3)
	successor := entry(b, 2000)
	f.Equal(store.Succeeds, f.put(successor)[0].Kind)
	_, err := f.Cancel(f.ctx, 0, []string{c})
	f.NoError(err)

	f.clock.Advance(-time.Hour)
	f.crash()
	verify(t, f.Store)
	r := f.get(a)
	f.Equal(store.Leased, r.State)
	f.Equal(1, r.Attempts)
	f.Equal(store.Millis(f.clock.Now().UnixMilli()), r.LeaseEnd)
	f.True(f.get(c).Cancelled)
	f.Equal(successor.At, f.get(b).SuccessorDue)

	// The previous holder has not lost its lease yet.
	results, _, err := f.Extend(f.ctx, 0, []store.Holder{before[a].Holder, before[c].Holder}, time.Second)
	f.NoError(err)
	f.Equal([]store.ExtendResult{store.Extended, store.ExtendCancelled}, results)
	f.crash()

	after := f.claim(0, 10)
	f.Len(after, 2) // c was cancelled, so it is removed
	for _, l := range after {
		f.Greater(l.Fence, last)
		switch l.Key {
		case a:
			f.Equal(2, l.Attempt)
			f.Equal(before[a].ID, l.ID)
			f.Equal(bodyOf(l.ID, 10), l.Body)
		case b:
			f.Equal(1, l.Attempt)
			f.Equal(successor.ID, l.ID)
			f.Equal(successor.Body, l.Body)
		}
	}
	verify(t, f.Store)
}

// D10: only the configuration and one record for each shard remain; bodies of all sizes are removed
// with their timers, however these end.
func TestEmptyMeansEmpty(t *testing.T) {
	f := newFixture(t)
	ways := map[string]func(key string){
		"done":      func(string) { f.end(f.claim(0, 1)[0], store.Done) },
		"cancelled": func(key string) { f.cancel(key, store.Cancelled) },
		"cancelled, running": func(key string) {
			l := f.claim(0, 1)[0]
			f.cancel(key, store.Running)
			f.end(l, store.Retry)
		},
		"purged": func(key string) {
			f.end(f.claim(0, 1)[0], store.DeadLetter)
			n, err := f.Purge(f.ctx, 0, []string{key, key})
			f.NoError(err)
			f.Equal(1, n)
		},
		"replaced": func(key string) {
			for _, n := range []int{0, 256, 257, 70, store.MaxBody} {
				f.Equal(store.Replaced, f.put(entry(key, n))[0].Kind)
			}
			f.cancel(key, store.Cancelled)
		},
		"succeeded": func(key string) {
			l := f.claim(0, 1)[0]
			for _, n := range []int{300, 0, 4000} {
				f.Equal(store.Succeeds, f.put(entry(key, n))[0].Kind)
			}
			f.end(l, store.Retry)
			f.end(f.claim(0, 1)[0], store.Done)
		},
		"successor cancelled": func(key string) {
			l := f.claim(0, 1)[0]
			f.put(entry(key, 5000))
			f.cancel(key, store.Running)
			f.end(l, store.Done)
		},
		"dead replaced": func(key string) {
			f.end(f.claim(0, 1)[0], store.DeadLetter)
			f.Equal(store.ReplacedDead, f.put(entry(key, 500))[0].Kind)
			f.end(f.claim(0, 1)[0], store.Done)
		},
		"requeued": func(key string) {
			f.end(f.claim(0, 1)[0], store.DeadLetter)
			results, _, err := f.Requeue(f.ctx, 0, []string{key, key})
			f.NoError(err)
			f.Equal([]store.RequeueResult{store.Requeued, store.RequeueExists}, results)
			f.end(f.claim(0, 1)[0], store.Done)
		},
		"given back, snoozed and retried": func(string) {
			f.end(f.claim(0, 1)[0], store.Release)
			f.end(f.claim(0, 1)[0], store.Snooze)
			f.end(f.claim(0, 1)[0], store.Retry)
			l := f.claim(0, 1)[0]
			f.Equal(2, l.Attempt)
			f.Equal("why", l.LastError)
			f.end(l, store.Release)
			f.end(f.claim(0, 1)[0], store.Done)
		},
		"run out too often": func(string) {
			for range 3 {
				f.Len(f.claim(0, 1), 1)
				f.clock.Advance(time.Minute)
			}
			claimed, _, err := f.Claim(f.ctx, 0, newClaim(1))
			f.NoError(err)
			f.Equal(1, claimed.DeadLettered)
			f.Empty(claimed.Leases)
			_, err = f.Purge(f.ctx, 0, []string{keyIn(0, 0)})
			f.NoError(err)
		},
	}
	for name, way := range ways {
		for _, size := range []int{0, 1, maxInline, maxInline + 1, store.MaxBody} {
			key := keyIn(0, 0)
			f.put(entry(key, size))
			verify(t, f.Store)
			way(key)
			verify(t, f.Store)
			f.Equal(2, f.left(), "%s, %d bytes", name, size)
		}
	}
	f.crash()
	f.Equal(2, f.left())
}

func (f *fixture) cancel(key string, want store.CancelResult) {
	f.Helper()
	results, err := f.Cancel(f.ctx, store.ShardOf(key, testShards), []string{key})
	f.NoError(err)
	f.Equal([]store.CancelResult{want}, results)
}

// D1: a claim removes and counts keys that belong to no timer.
func TestClaimRepairs(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Limits.MaxDead = 1 })
	for i := range 3 {
		f.put(entry(keyIn(0, i), 0))
	}
	dead := f.claim(0, 2)
	f.end(dead[0], store.DeadLetter)
	f.end(dead[1], store.DeadLetter)
	for _, key := range [][]byte{
		laneKey(nil, 0, 1, 1, keyIn(0, 7)),            // no such timer
		laneKey(nil, 0, store.LaneOf("topic"), 1, ""), // before all others
		deadKey(nil, 0, 1, keyIn(0, 8)),
		timerKey(nil, 0, kindLease, keyIn(0, 9)),
	} {
		f.NoError(f.db.Set(key, appendLease(nil, &lease{}), pebble.Sync))
	}
	var v meta
	raw, err := f.shards[0].read(metaKey(nil, 0))
	f.NoError(err)
	v, err = decodeMeta(raw)
	f.NoError(err)
	v.waiting[1]++
	v.waiting[store.LaneOf("topic")]++
	v.fronts = [lanes]store.Millis{}
	v.dead++
	f.NoError(f.db.Set(metaKey(nil, 0), appendMeta(nil, &v), pebble.Sync))
	f.crash()

	claimed, _, err := f.Claim(f.ctx, 0, newClaim(10))
	f.NoError(err)
	f.Equal(4, claimed.Repaired)
	f.Len(claimed.Leases, 1)
	f.Empty(f.claim(0, 10), "what was repaired is not repaired again")
	st, err := f.Stats(f.ctx, 0)
	f.NoError(err)
	f.Equal(1, st.Dead)
	f.EqualValues(1, st.Dropped)
	verify(t, f.Store)
}

// D9: an entry among the dead that belongs to no dead letter counts until it is repaired, and no
// dead letter is dropped for it.
func TestRepairDropsNoDeadLetter(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Limits.MaxDead = 1 })
	f.put(entry(keyIn(0, 0), 0))
	f.end(f.claim(0, 1)[0], store.DeadLetter)
	f.NoError(f.db.Set(deadKey(nil, 0, 1, keyIn(0, 8)), nil, pebble.Sync))
	raw, err := f.shards[0].read(metaKey(nil, 0))
	f.NoError(err)
	m, err := decodeMeta(raw)
	f.NoError(err)
	m.dead++
	f.NoError(f.db.Set(metaKey(nil, 0), appendMeta(nil, &m), pebble.Sync))
	f.crash()
	claimed, _, err := f.Claim(f.ctx, 0, newClaim(1))
	f.NoError(err)
	f.Equal(1, claimed.Repaired)
	f.Equal(store.Dead, f.get(keyIn(0, 0)).State)
	verify(t, f.Store)
}

// D1: of several entries of a timer in lanes, only the one with the due time and lane of its record
// counts. The others are removed, even if they are due.
func TestSecondPositionsAreRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		lane int // relative to the timer's own
		due  store.Millis
	}{"earlier": {0, 1}, "later": {0, 900}, "another lane": {1, 500}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			e := entry(keyIn(0, 0), 0)
			e.At = 500
			f.put(e)
			own := store.LaneOf(e.Topic)
			lane := (own + c.lane) % store.Lanes
			f.NoError(f.db.Set(laneKey(nil, 0, lane, c.due, e.Key), nil, pebble.Sync))
			raw, err := f.shards[0].read(metaKey(nil, 0))
			f.NoError(err)
			m, err := decodeMeta(raw)
			f.NoError(err)
			m.waiting[lane]++
			m.fronts = [lanes]store.Millis{}
			f.NoError(f.db.Set(metaKey(nil, 0), appendMeta(nil, &m), pebble.Sync))
			f.crash()

			claim := newClaim(10)
			claim.FirstLane = lane // so that it comes to the wrong lane first
			claimed, _, err := f.Claim(f.ctx, 0, claim)
			f.NoError(err)
			f.Equal(1, claimed.Repaired)
			f.Len(claimed.Leases, 1)
			f.Equal(store.Millis(500), claimed.Leases[0].Due)
			f.end(claimed.Leases[0], store.Done)
			f.Equal(2, f.left())
			verify(t, f.Store)
		})
	}
}

// D1: a lane that is empty is treated as empty, even if the shard's record counts timers in it.
func TestCountOfAnEmptyLaneIsRepaired(t *testing.T) {
	f := newFixture(t)
	f.put(entry(keyIn(0, 0), 0))
	f.end(f.claim(0, 1)[0], store.Done)
	m := meta{number: 1 << 60}
	m.waiting[2] = 3
	f.NoError(f.db.Set(metaKey(nil, 0), appendMeta(nil, &m), pebble.Sync))
	f.crash()
	st, err := f.Stats(f.ctx, 0)
	f.NoError(err)
	f.Zero(st.Waiting)
	f.Zero(st.NextDue)
	f.put(entry(keyIn(0, 0), 0))
	f.Len(f.claim(0, 10), 1)
	verify(t, f.Store)
}

func TestShardsAreKept(t *testing.T) {
	f := newFixture(t)
	f.NoError(f.Store.Close())
	f.opts.Shards = 5
	_, err := Open("dir", f.opts)
	f.ErrorIs(err, store.ErrShards)
	f.ErrorContains(err, "it has 4, Options.Shards is 5")
	f.opts.Shards = 0
	f.open()
	f.Equal(4, f.Shards())

	f.NoError(f.db.Set([]byte{keyConfig}, binary.AppendUvarint(nil, 9), pebble.Sync))
	f.NoError(f.Store.Close())
	_, err = Open("dir", f.opts)
	f.ErrorContains(err, "the folder has format 9, this version reads 2")

	s, err := Open("new", Options{Logger: quiet, fs: vfs.NewMem()})
	f.NoError(err)
	f.Equal(16, s.Shards())
	f.NoError(s.Close())
}

func TestOptionsAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"Options.Shards is -1, must be 1 to 1024":                   {Shards: -1},
		"Options.Shards is 1025, must be 1 to 1024":                 {Shards: 1025},
		"Limits.MaxDead is -1":                                      {Limits: store.Limits{MaxDead: -1}},
		"Options.CallTimeout is 1µs, must be 1ms or more":           {CallTimeout: time.Microsecond},
		"Options.CacheBytes is 1, must be 1048576 or more":          {CacheBytes: 1},
		"Options.MemTableBytes is 1, must be 1048576 to 1073741824": {MemTableBytes: 1},
	} {
		_, err := Open(t.TempDir(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{Logger: quiet})
	require.NoError(t, err)
	_, err = Open(dir, Options{Logger: quiet})
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, s.Close())
	s, err = Open(dir, Options{Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, s.Close())

	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	_, err = Open(dir+"/file", Options{Logger: quiet})
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrInUse)
}

func TestClosed(t *testing.T) {
	f := newFixture(t)
	subscribed := make(chan error, 1)
	gap := make(chan struct{})
	go func() { subscribed <- f.Subscribe(f.ctx, func(store.Event) { close(gap) }) }()
	<-gap
	f.NoError(f.Store.Close())
	f.NoError(f.Store.Close())
	f.ErrorIs(<-subscribed, store.ErrClosed)
	f.allReturn(store.ErrClosed)
}

// allReturn makes each call once, and expects err.
func (f *fixture) allReturn(err error) {
	f.Helper()
	key := keyIn(0, 0)
	_, _, e := f.Schedule(f.ctx, 0, []store.Entry{entry(key, 0)})
	f.ErrorIs(e, err)
	_, e = f.Cancel(f.ctx, 0, []string{key})
	f.ErrorIs(e, err)
	_, _, e = f.Reschedule(f.ctx, 0, []store.Move{{Key: key}})
	f.ErrorIs(e, err)
	_, e = f.Get(f.ctx, 0, key)
	f.ErrorIs(e, err)
	_, e = f.List(f.ctx, 0, store.Query{State: store.Waiting, Limit: 1})
	f.ErrorIs(e, err)
	_, e = f.List(f.ctx, 0, store.Query{State: store.Dead, Limit: 1})
	f.ErrorIs(e, err)
	_, _, e = f.Requeue(f.ctx, 0, []string{key})
	f.ErrorIs(e, err)
	_, e = f.Purge(f.ctx, 0, []string{key})
	f.ErrorIs(e, err)
	_, _, e = f.Claim(f.ctx, 0, newClaim(1))
	f.ErrorIs(e, err)
	_, _, _, e = f.SwapPlans(f.ctx, 0, []store.PlanSwap{{Key: store.PlanKey(key), ID: store.NewID()}}, store.SwapClaim{})
	f.ErrorIs(e, err)
	_, e = f.Plans(f.ctx, 0, "", 1)
	f.ErrorIs(e, err)
	_, _, e = f.Extend(f.ctx, 0, []store.Holder{{Key: key}}, time.Second)
	f.ErrorIs(e, err)
	_, _, e = f.End(f.ctx, 0, []store.Outcome{{Holder: store.Holder{Key: key}, Kind: store.Done}})
	f.ErrorIs(e, err)
	_, e = f.Horizons(f.ctx, []int{0})
	f.ErrorIs(e, err)
	_, e = f.Stats(f.ctx, 0)
	f.ErrorIs(e, err)
	_, e = f.Heartbeat(f.ctx, store.Heartbeat{Worker: "w"})
	f.ErrorIs(e, err)
	_, e = f.Workers(f.ctx)
	f.ErrorIs(e, err)
	f.ErrorIs(f.Announce(f.ctx, store.Event{Kind: store.Busy}), err)
	f.ErrorIs(f.Subscribe(f.ctx, func(store.Event) {}), err)
}

// Invalid arguments are refused by name, and so is a key of another shard: no call would find it
// there.
func TestArgumentsAreRefused(t *testing.T) {
	f := newFixture(t)
	for want, err := range map[string]error{
		"the shard is 4, must be 0 to 3":                    second(f.Horizons(f.ctx, []int{4})),
		"the shard is -1, must be 0 to 3":                   second(f.Stats(f.ctx, -1)),
		fmt.Sprintf("%q is of shard 1, not 0", keyIn(1, 0)): second(f.Get(f.ctx, 0, keyIn(1, 0))),
		"a timer's key is 513 bytes long":                   second(f.Get(f.ctx, 0, strings.Repeat("k", 513))),
		"a call has 501 items, must be at most 500":         second(f.Cancel(f.ctx, 0, make([]string, 501))),
		"a worker's name is 0 bytes long":                   second(f.Heartbeat(f.ctx, store.Heartbeat{})),
		"an event of kind 1 is announced":                   f.Announce(f.ctx, store.Event{Kind: store.Earlier}),
	} {
		f.ErrorContains(err, want)
	}
	_, _, err := f.End(f.ctx, 0, []store.Outcome{{Holder: store.Holder{Key: keyIn(0, 0)}}})
	f.ErrorContains(err, "Outcome.Kind is 0, must be 1 to 5")
	_, _, err = f.Extend(f.ctx, 0, nil, time.Millisecond)
	f.ErrorContains(err, "the lease is 1ms, must be 100ms to 24h0m0s")
	_, _, err = f.Claim(f.ctx, 0, store.Claim{})
	f.ErrorContains(err, "a worker's name is 0 bytes long")
}

func second[T any](_ T, err error) error { return err }
