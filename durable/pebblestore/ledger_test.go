package pebblestore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/sequential"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

func long() bool { return os.Getenv("LIMBO_LONG") == "1" }

// note is a call of a workload: noted when it begins and, with Acked and what it
// returned, when it was acknowledged.
type note struct {
	Shard int
	Call  string
	Keys  []string
	IDs   []store.ID
	At    []store.Millis
	Kinds []store.EndKind
	Acked bool
}

// ledger is what the workloads of all shards have noted: one call of a shard after
// another.
type ledger []note

func (l *ledger) note(e note) { *l = append(*l, e) }

// replay returns what the acknowledged calls on a shard have left, and the call that
// was under way.
func (l ledger) replay(shard int) (timers map[string]sequential.Timer, last *note) {
	timers = map[string]sequential.Timer{}
	for _, e := range l {
		if e.Shard != shard {
			continue
		}
		if last = nil; !e.Acked {
			last = &e
			continue
		}
		e.apply(timers)
	}
	return timers, last
}

// apply makes a call on the timers of a shard.
func (e note) apply(timers map[string]sequential.Timer) {
	for i, key := range e.Keys {
		t := timers[key]
		switch e.Call {
		case "schedule":
			_, t = t.Schedule(store.Entry{ID: e.IDs[i], At: e.At[i]})
		case "cancel":
			_, t = t.Cancel()
		case "move":
			t = t.Reschedule(e.At[i])
		case "claim":
			t = t.Claim()
		case "end":
			_, t = t.End(e.Kinds[i])
		case "requeue":
			_, t = t.Requeue()
		case "purge":
			_, t = t.Purge()
		}
		if timers[key] = t; t.State == 0 {
			delete(timers, key)
		}
	}
}

// check compares a store with the notes (D1, D3): all that was acknowledged is
// there, and the call that was under way has happened as a whole or not at all.
func (l ledger) check(t testing.TB, s *Store) {
	t.Helper()
	for shard := range s.Shards() {
		want, last := l.replay(shard)
		keys := map[string]bool{}
		for _, e := range l {
			if e.Shard == shard {
				for _, key := range e.Keys {
					keys[key] = true
				}
			}
		}
		got := map[string]sequential.Timer{}
		for key := range keys {
			r, err := s.Get(t.Context(), shard, key)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			require.NoError(t, err)
			checkBody(t, r.ID, r.Body)
			got[key] = sequential.Timer{
				State: r.State, ID: r.ID, Attempts: r.Attempts, Due: r.Due, Cancelled: r.Cancelled, SuccessorDue: r.SuccessorDue,
			}
		}
		if last != nil && !same(want, got) {
			if last.Call == "claim" { // what it took, its answer would have told
				for key, r := range got {
					if r.State == store.Leased && want[key].State == store.Waiting {
						last.Keys = append(last.Keys, key)
					}
				}
			}
			last.apply(want)
		}
		if !same(want, got) {
			require.Equal(t, want, got, "shard %d; under way: %+v", shard, last)
		}
	}
}

func same(want, got map[string]sequential.Timer) bool {
	return maps.EqualFunc(want, got, func(w, g sequential.Timer) bool {
		if w.Due == 0 || w.State == store.Leased {
			w.Due = g.Due
		}
		w.Successor = store.ID{} // shown when it waits
		return w == g
	})
}

func checkBody(t testing.TB, id store.ID, body []byte) {
	t.Helper()
	require.Equal(t, hex.EncodeToString(bodyOf(id, sizeOf(id))), hex.EncodeToString(body))
}

// sizeOf is how long the body of a timer of a workload is.
func sizeOf(id store.ID) int {
	return []int{0, 10, maxInline, maxInline + 1, 3000, 60000}[int(id[0])%6]
}

func workloadKey(i int) string { return fmt.Sprint("k", i) }

// workload makes random calls on one shard, one after another.
type workload struct {
	s     *Store
	shard int
	rnd   *rand.Rand
	note  func(note)
	keys  []string
	held  []store.Holder
	at    store.Millis
}

func newWorkload(s *Store, shard int, seed uint64, f func(note)) *workload {
	w := &workload{s: s, shard: shard, rnd: rand.New(rand.NewPCG(seed, 2)), note: f, at: 1}
	for i := 0; len(w.keys) < 20; i++ {
		if key := workloadKey(i); store.ShardOf(key, s.Shards()) == shard {
			w.keys = append(w.keys, key)
		}
	}
	return w
}

// next makes a call, and notes it before and, if it was acknowledged, after.
func (w *workload) next(ctx context.Context) (err error) {
	e := note{Shard: w.shard}
	for range 1 + w.rnd.IntN(4) {
		if key := w.keys[w.rnd.IntN(len(w.keys))]; !slices.Contains(e.Keys, key) {
			e.Keys = append(e.Keys, key)
			w.at++
			e.At = append(e.At, w.at)
		}
	}
	var call func() error
	switch n := w.rnd.IntN(16); {
	case n < 5:
		e.Call, call = "schedule", w.schedule(ctx, &e)
	case n == 5:
		e.Call, call = "cancel", func() error { _, err := w.s.Cancel(ctx, w.shard, e.Keys); return err }
	case n == 6:
		var moves []store.Move
		for i, key := range e.Keys {
			moves = append(moves, store.Move{Key: key, At: e.At[i]})
		}
		e.Call, call = "move", func() error { _, _, err := w.s.Reschedule(ctx, w.shard, moves); return err }
	case n == 7:
		e.Call, call = "requeue", func() error { _, _, err := w.s.Requeue(ctx, w.shard, e.Keys); return err }
	case n == 8:
		e.Call, call = "purge", func() error { _, err := w.s.Purge(ctx, w.shard, e.Keys); return err }
	case n < 12 || len(w.held) == 0:
		e.Call, e.Keys, call = "claim", nil, w.claim(ctx, &e)
	default:
		e.Call, call = "end", w.end(ctx, &e)
	}
	w.note(e)
	if err := call(); err != nil {
		return err
	}
	e.Acked = true
	w.note(e)
	return nil
}

func (w *workload) schedule(ctx context.Context, e *note) func() error {
	var entries []store.Entry
	for i, key := range e.Keys {
		id := store.NewID()
		e.IDs = append(e.IDs, id)
		entries = append(entries, store.Entry{
			Key: key, ID: id, Topic: fmt.Sprint("t", w.rnd.IntN(9)), Body: bodyOf(id, sizeOf(id)), At: e.At[i],
		})
	}
	return func() error { _, _, err := w.s.Schedule(ctx, w.shard, entries); return err }
}

func (w *workload) claim(ctx context.Context, e *note) func() error {
	c := store.Claim{
		Worker: "w", Token: store.NewToken(), Max: 1 + w.rnd.IntN(8), MaxBytes: store.MaxClaim,
		Lease: store.MaxLease, MaxAttempts: 1 << 20, FirstLane: w.rnd.IntN(store.Lanes + 1),
	}
	return func() error {
		claimed, _, err := w.s.Claim(ctx, w.shard, c)
		for _, l := range claimed.Leases {
			e.Keys = append(e.Keys, l.Key)
			w.held = append(w.held, l.Holder)
		}
		return err
	}
}

func (w *workload) end(ctx context.Context, e *note) func() error {
	e.Keys = nil
	var ends []store.End
	for range 1 + w.rnd.IntN(len(w.held)) {
		i := w.rnd.IntN(len(w.held))
		end := store.End{Holder: w.held[i], Kind: store.EndKind(1 + w.rnd.IntN(5)), Delay: -time.Second, Error: "why"}
		w.held = slices.Delete(w.held, i, i+1)
		e.Keys, e.Kinds, ends = append(e.Keys, end.Key), append(e.Kinds, end.Kind), append(ends, end)
	}
	return func() error {
		results, _, err := w.s.End(ctx, w.shard, ends)
		if slices.Contains(results, store.EndLost) {
			return errors.New("a lease was lost")
		}
		return err
	}
}
