package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// twins are a store and an oracle that get the same calls.
type twins struct {
	*fixture
	oracle *oracle.Store
	rnd    *rand.Rand
	ids    map[string]store.ID // what a plan's ID was last
	plans  []string
	keys   []string // of occurrences and timers
	held   [][2]store.Holder
	log    []string
}

// Random calls on plans, their occurrences and other timers of one shard get the oracle's
// answers, and leave what it has; the folder is whole after each of them, and after crashes.
func TestPlansLikeTheOracle(t *testing.T) {
	t.Parallel()
	rounds := 40
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
			w.oracle.EndLeases()
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
			Key: w.plans[i], Was: w.ids[w.plans[i]], ID: store.NewID(), Body: w.body(), Due: w.due(),
			Wake: store.Wake(w.rnd.IntN(3)), Seen: uint64(w.rnd.IntN(8)),
		}
		for j := range 4 {
			if w.rnd.IntN(3) == 0 {
				p.Entries = append(p.Entries, w.entry(w.keys[4*i+j]))
			}
		}
		switch w.rnd.IntN(8) {
		case 0:
			p.Was = store.NewID()
		case 1:
			if p.Was != (store.ID{}) {
				p.ID = store.ID{}
			}
		}
		swaps = append(swaps, p)
	}
	want, wantH, wantErr := w.oracle.SwapPlans(w.ctx, 0, swaps)
	got, gotH, gotErr := w.SwapPlans(w.ctx, 0, swaps)
	for _, p := range swaps {
		w.note("swap %q %v to %v, due %d, wake %d, seen %d, %d entries", p.Key, p.Was, p.ID, p.Due, p.Wake, p.Seen, len(p.Entries))
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
			want.Leases[i].Fence, got.Leases[i].Fence = 0, 0 // numbers of bodies are between them
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
	var ends [2][]store.End
	for range 1 + w.rnd.IntN(4) {
		if len(w.held) == 0 {
			return
		}
		h := w.held[max(0, len(w.held)-1-w.rnd.IntN(6))]
		kind := store.EndKind(1 + w.rnd.IntN(5))
		if store.IsPlan(h[0].Key) && (kind == store.Bury || kind == store.Done && w.rnd.IntN(4) > 0) {
			kind = store.Retry
		}
		e := store.End{Kind: kind, Error: fmt.Sprintf("%0130d", w.rnd.IntN(10)), Delay: time.Second}
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

// compare reads both, and the whole folder.
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
