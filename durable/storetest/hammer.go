package storetest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// callResults counts the results of the calls on one ID.
type callResults struct {
	scheduled, acked, cancelled, running atomic.Int32
	holding                              atomic.Bool
}

// hammer runs schedulers, which also cancel, and workers on all shards at once. At the end each ID
// was acknowledged once or cancelled, unless its cancel returned Running; and none was held twice
// at a time.
func hammer(f *fixture) {
	const shards, workers, schedulers = 4, 4, 3
	perScheduler := 600
	if long() {
		perScheduler = 20_000
	}
	f.open(Options{Shards: shards})
	h := &hammering{f: f, resultsByID: map[store.ID]*callResults{}}
	var scheduling, working sync.WaitGroup
	for i := range schedulers {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		scheduling.Go(func() { h.schedule(i, perScheduler, rnd) })
	}
	for i := range workers {
		rnd := rand.New(rand.NewPCG(uint64(i), 2))
		working.Go(func() { h.work(rnd) })
	}
	scheduling.Wait()
	h.done.Store(true)
	working.Wait()
	for id, results := range h.resultsByID {
		acked, cancelled := results.acked.Load(), results.cancelled.Load()
		f.LessOrEqual(acked, int32(1), "D7: %v is acknowledged twice", id)
		f.LessOrEqual(acked+cancelled, int32(1), "D4: %v is acknowledged, and its cancel said Cancelled", id)
		if results.running.Load() == 0 {
			f.Equal(int32(1), acked+cancelled, "D3: %v is lost", id)
		}
	}
	f.Len(h.resultsByID, schedulers*perScheduler)
	f.Logf("%d runs were cancelled", h.cancelledRuns.Load())
	f.empty()
}

// hammering is the state that the goroutines of hammer share.
type hammering struct {
	f             *fixture
	done          atomic.Bool // all timers are scheduled
	cancelledRuns atomic.Int32

	mu          sync.Mutex
	resultsByID map[store.ID]*callResults
}

func (h *hammering) callResults(id store.ID) *callResults {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resultsByID[id] == nil {
		h.resultsByID[id] = &callResults{}
	}
	return h.resultsByID[id]
}

// fail reports an error; a goroutine of the hammer must not end its test.
func (h *hammering) fail(ok bool, what string, args ...any) {
	if !ok {
		h.f.TB.Errorf(what, args...)
	}
}

// schedule schedules its own keys, once each, and cancels some of them.
func (h *hammering) schedule(scheduler, n int, rnd *rand.Rand) {
	f := h.f
	batches := make([][]store.Entry, f.Store.Shards())
	flush := func(shard int) {
		batch := batches[shard]
		batches[shard] = nil
		receipts, _, err := f.Store.Schedule(f.ctx, shard, batch)
		h.fail(err == nil, "schedule: %v", err)
		for i, r := range receipts {
			h.fail(r.Kind == store.Created, "%s: %v", batch[i].Key, r.Kind)
			if rnd.IntN(5) > 0 {
				continue
			}
			counts := h.callResults(batch[i].ID)
			results, err := f.Store.Cancel(f.ctx, shard, []string{batch[i].Key})
			switch {
			case err != nil:
				h.fail(false, "cancel: %v", err)
			case results[0] == store.Cancelled:
				counts.cancelled.Add(1)
			case results[0] == store.Running:
				counts.running.Add(1)
				h.cancelledRuns.Add(1)
			}
		}
	}
	for i := range n {
		e := entry(name(name("s", scheduler), i))
		e.Topic = topicOf(i % store.Lanes)
		h.callResults(e.ID).scheduled.Add(1)
		shard := f.shardOf(e.Key)
		batches[shard] = append(batches[shard], e)
		if len(batches[shard]) == 20 {
			flush(shard)
		}
	}
	for shard, batch := range batches {
		if len(batch) > 0 {
			flush(shard)
		}
	}
}

// work claims and ends until done is set and no timer is left.
func (h *hammering) work(rnd *rand.Rand) {
	f := h.f
	for {
		last := h.done.Load()
		idle := true
		for shard := range f.Store.Shards() {
			c := newClaim(1 + rnd.IntN(40))
			c.Lease, c.FirstLane, c.MaxAttempts = store.MaxLease, rnd.IntN(store.Lanes+1), 1<<30
			claimed, _, err := f.Store.Claim(f.ctx, shard, c)
			h.fail(err == nil, "claim: %v", err)
			if err == nil && len(claimed.Leases) > 0 {
				idle = false
				h.end(shard, claimed.Leases, rnd)
			}
		}
		if f.TB.Failed() || last && idle && h.stillLeased() == 0 {
			return
		}
	}
}

func (h *hammering) stillLeased() (n int) {
	for shard := range h.f.Store.Shards() {
		st, err := h.f.Store.Stats(h.f.ctx, shard)
		h.fail(err == nil, "stats: %v", err)
		n += st.Leased + st.Waiting
	}
	return n
}

// end ends all leases of a claim, with random outcomes.
func (h *hammering) end(shard int, leases []store.Lease, rnd *rand.Rand) {
	f := h.f
	outcomes := make([]store.Outcome, len(leases))
	counts := make([]*callResults, len(leases))
	var extend []store.Holder
	for i, l := range leases {
		counts[i] = h.callResults(l.ID)
		h.fail(counts[i].scheduled.Load() == 1, "%s was not scheduled", l.Key)
		h.fail(counts[i].holding.CompareAndSwap(false, true), "D8: %s is held twice at a time", l.Key)
		h.fail(counts[i].acked.Load() == 0, "D7: %s is leased after its acknowledgement", l.Key)
		h.fail(counts[i].cancelled.Load() == 0, "D4: %s is leased after Cancelled", l.Key)
		kind := store.Done
		if p := rnd.IntN(4); p == 0 {
			kind = outcomeKinds[1+rnd.IntN(3)]
		}
		outcomes[i] = store.Outcome{Holder: l.Holder, Kind: kind}
		if rnd.IntN(4) == 0 {
			extend = append(extend, l.Holder)
		}
	}
	if len(extend) > 0 {
		results, _, err := f.Store.Extend(f.ctx, shard, extend, store.MaxLease-time.Second)
		h.fail(err == nil, "extend: %v", err)
		for i, r := range results {
			h.fail(r != store.ExtendLost, "D5: %s is lost, but no other call has it", extend[i].Key)
		}
	}
	for i := range outcomes {
		if outcomes[i].Kind == store.Done {
			counts[i].acked.Add(1)
		}
		counts[i].holding.Store(false)
	}
	results, _, err := f.Store.End(f.ctx, shard, outcomes)
	h.fail(err == nil, "end: %v", err)
	for i, r := range results {
		h.fail(r != store.EndLost, "D5: %s is lost, but no other call has it: %v", outcomes[i].Key, r)
	}
}
