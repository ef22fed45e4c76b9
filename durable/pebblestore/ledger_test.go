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

// note is a call of a workload. It is noted when the call begins and, with Acked and the results,
// when it is acknowledged.
type note struct {
	Shard int
	Call  string
	Keys  []string
	IDs   []store.ID
	At    []store.Millis
	Kinds []store.OutcomeKind
	Swaps []store.PlanSwap // without bodies, which follow from their IDs
	Acked bool
}

// timerState is the known state of a key.
type timerState struct {
	sequential.Timer
	wake store.Wake // of a plan
	ends [store.OccurrenceCancelled + 1]uint64
}

// wakes counts as store.PlanSwap.Seen does.
func (k timerState) wakes(w store.Wake) uint64 {
	switch w {
	case store.WakeOnDead:
		return k.ends[store.OccurrenceDead]
	case store.WakeOnEnd:
		return k.ends[store.OccurrenceDone] + k.ends[store.OccurrenceDead] + k.ends[store.OccurrenceCancelled]
	}
	return 0
}

// ledger holds the notes of the workloads of all shards. The calls of one shard follow one another.
type ledger []note

func (l *ledger) note(e note) { *l = append(*l, e) }

// replay returns the timers that the acknowledged calls on a shard have left, and the call that was
// in progress.
func (l ledger) replay(shard int) (timers map[string]timerState, last *note) {
	timers = map[string]timerState{}
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
func (e note) apply(timers map[string]timerState) {
	for _, p := range e.Swaps {
		applySwap(timers, p)
	}
	for i, key := range e.Keys {
		k := timers[key]
		t := k.Timer
		var outcome store.OccurrenceOutcome
		switch e.Call {
		case "schedule":
			_, t = t.Schedule(store.Entry{ID: e.IDs[i], At: e.At[i]})
		case "cancel":
			var r store.CancelResult
			if r, t = t.Cancel(); r == store.Cancelled {
				outcome = store.OccurrenceCancelled
			}
		case "move":
			t = t.Reschedule(e.At[i])
		case "claim":
			t = t.Claim()
		case "end":
			var r store.EndResult
			switch r, t = t.End(e.Kinds[i]); {
			case r == store.EndCancelled:
				outcome = store.OccurrenceCancelled
			case r == store.Ended && e.Kinds[i] == store.Done:
				outcome = store.OccurrenceDone
			case r == store.Ended && e.Kinds[i] == store.DeadLetter:
				outcome = store.OccurrenceDead
			}
		case "requeue":
			_, t = t.Requeue()
		case "purge":
			_, t = t.Purge()
		}
		k.Timer = t
		if timers[key] = k; t.State == 0 {
			delete(timers, key)
		}
		if p, ok := timers[store.PlanOf(key)]; ok && outcome != 0 {
			p.ends[outcome]++
			if p.State == store.Waiting && (p.wake == store.WakeOnEnd || p.wake == store.WakeOnDead && outcome == store.OccurrenceDead) {
				p.wake, p.Due = store.WakeNever, 0
			}
			timers[store.PlanOf(key)] = p
		}
	}
}

func applySwap(timers map[string]timerState, p store.PlanSwap) {
	k := timers[p.Key]
	if k.ID != p.Expected {
		return
	}
	if delete(timers, p.Key); p.ID == (store.ID{}) {
		return
	}
	k.Timer, k.wake = sequential.Timer{State: store.Waiting, ID: p.ID, Due: p.Due}, p.Wake
	if k.wakes(p.Wake) > p.Seen {
		k.wake, k.Due = store.WakeNever, 0
	}
	timers[p.Key] = k
	for _, e := range p.Entries {
		if _, ok := timers[e.Key]; !ok {
			timers[e.Key] = timerState{Timer: sequential.Timer{State: store.Waiting, ID: e.ID, Due: e.At}}
		}
	}
}

// check compares a store with the notes: all acknowledged changes exist (accepted timers survive,
// D3), and the call in progress has happened as a whole or not at all (one state, D1).
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
				for _, p := range e.Swaps {
					keys[p.Key] = true
					for _, entry := range p.Entries {
						keys[entry.Key] = true
					}
				}
			}
		}
		got := map[string]timerState{}
		for key := range keys {
			r, err := s.Get(t.Context(), shard, key)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			require.NoError(t, err)
			checkBody(t, r.ID, r.Body)
			k := timerState{Timer: sequential.Timer{
				State: r.State, ID: r.ID, Attempts: r.Attempts, Due: r.Due, Cancelled: r.Cancelled, SuccessorDue: r.SuccessorDue,
			}}
			if h := r.History; h != nil {
				k.ends = [...]uint64{0, h.Done, h.Dead, h.Cancelled}
			}
			got[key] = k
		}
		if last != nil && !same(want, got) {
			if last.Call == "claim" { // only its answer would name the claimed timers
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

func same(want, got map[string]timerState) bool {
	return maps.EqualFunc(want, got, func(w, g timerState) bool {
		if w.Due == 0 || w.State == store.Leased {
			w.Due = g.Due
		}
		w.Successor, w.wake = store.ID{}, 0 // shown when they have an effect
		return w == g
	})
}

func checkBody(t testing.TB, id store.ID, body []byte) {
	t.Helper()
	require.Equal(t, hex.EncodeToString(bodyOf(id, sizeOf(id))), hex.EncodeToString(body))
}

// sizeOf is the length of the body of a workload's timer.
func sizeOf(id store.ID) int {
	return []int{0, 10, maxInline, maxInline + 1, 3000, 60000}[int(id[0])%6]
}

// workloadKeys returns the keys of a workload: of timers, of which the last are occurrences, and of
// their plans.
func workloadKeys(shard, shards int) (timers, plans []string) {
	for i := 0; len(timers) < 14; i++ {
		if key := fmt.Sprint("k", i); store.ShardOf(key, shards) == shard {
			timers = append(timers, key)
		}
	}
	for _, key := range timers[:2] {
		plans = append(plans, store.PlanKey(key))
		for i := range 3 {
			timers = append(timers, fmt.Sprint(store.PlanKey(key), i))
		}
	}
	return timers, plans
}

// workload makes random calls on one shard, one after another.
type workload struct {
	s     *Store
	shard int
	rnd   *rand.Rand
	note  func(note)
	keys  []string
	plans []string
	ids   map[string]store.ID // of the plans
	held  []store.Holder
	at    store.Millis
}

func newWorkload(s *Store, shard int, seed uint64, f func(note)) *workload {
	w := &workload{s: s, shard: shard, rnd: rand.New(rand.NewPCG(seed, 2)), note: f, at: 1, ids: map[string]store.ID{}}
	w.keys, w.plans = workloadKeys(shard, s.Shards())
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
	switch n := w.rnd.IntN(20); {
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
	case n > 15:
		e.Call, e.Keys, call = "swap", nil, w.swap(ctx, &e)
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
		Worker: "w", Token: store.NewToken("w"), Max: 1 + w.rnd.IntN(8), MaxBytes: store.MaxClaim,
		Lease: store.MaxLease, MaxAttempts: 1 << 20, FirstLane: w.rnd.IntN(store.Lanes + 1), Plans: w.rnd.IntN(3),
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
	var ends []store.Outcome
	for range 1 + w.rnd.IntN(len(w.held)) {
		i := w.rnd.IntN(len(w.held))
		end := store.Outcome{Holder: w.held[i], Kind: store.OutcomeKind(1 + w.rnd.IntN(5)), Delay: -time.Second, Error: "why"}
		w.held = slices.Delete(w.held, i, i+1)
		if store.IsPlan(end.Key) {
			end.Kind = store.OutcomeKind(2 + w.rnd.IntN(3))
		}
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

// swap swaps one or two plans. In one of eight swaps, Expected is wrong.
func (w *workload) swap(ctx context.Context, e *note) func() error {
	var swaps []store.PlanSwap
	ids := maps.Clone(w.ids)
	for range 1 + w.rnd.IntN(2) {
		i := w.rnd.IntN(len(w.plans))
		key := w.plans[i]
		w.at++
		p := store.PlanSwap{
			Key: key, Expected: ids[key], ID: store.NewID(), Due: []store.Millis{w.at, store.MaxMillis}[w.rnd.IntN(2)],
			Wake: store.Wake(w.rnd.IntN(3)), Seen: uint64(w.rnd.IntN(10)),
		}
		for j := range w.rnd.IntN(4) {
			p.Entries = append(p.Entries, store.Entry{Key: fmt.Sprint(key, j), ID: store.NewID(), At: w.at})
		}
		switch n := w.rnd.IntN(8); {
		case n == 0:
			p.Expected = store.NewID()
		case n == 1 && p.Expected != store.ID{}:
			p.ID = store.ID{}
			fallthrough
		default:
			ids[key] = p.ID
		}
		e.Swaps = append(e.Swaps, p)
		p.Entries = slices.Clone(p.Entries)
		p.Body = bodyOf(p.ID, sizeOf(p.ID))
		for j, entry := range p.Entries {
			p.Entries[j].Body = bodyOf(entry.ID, sizeOf(entry.ID))
		}
		swaps = append(swaps, p)
	}
	return func() error {
		results, _, _, err := w.s.SwapPlans(ctx, w.shard, swaps, store.SwapClaim{})
		for i, r := range results {
			if r == store.Swapped {
				w.ids[swaps[i].Key] = swaps[i].ID
				w.held = slices.DeleteFunc(w.held, func(h store.Holder) bool { return h.Key == swaps[i].Key })
			}
		}
		return err
	}
}
