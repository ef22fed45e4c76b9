package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

var hourTest = test{"D2 D3 D10 an hour of the engine's clock", hour}

// hour schedules timers that are due at any time within an hour, many of them at the border of two
// steps, and moves the engine's clock through it step by step. It claims where the horizon says that
// a timer is due. Each is claimed in the step in which it is due, once, and nothing is left.
func hour(f *fixture) {
	const shards = 4
	f.open(Options{Shards: shards})
	timers, step := 1_000, 10*time.Second
	if _, slow := f.Store.(*oracle.Store); long() && !slow {
		timers, step = 1_000_000, time.Second
	}
	if f.Advance == nil || !f.Frozen {
		f.Skip("the engine's clock is not frozen")
	}
	begin := f.readHorizon(0).Now
	end := begin + store.MillisOf(time.Hour)
	f.scheduleWithin(timers, begin, end, store.MillisOf(step))

	var claimed atomic.Int64
	for now := begin; now < end; {
		from := now
		f.Advance(step)
		now += store.MillisOf(step)
		horizons, err := f.Store.Horizons(f.ctx, []int{0, 1, 2, 3})
		f.NoError(err)
		f.eachShard(func(n int) error {
			if due := horizons[n].NextDue; due == 0 || due > now {
				return nil
			}
			count, err := f.claimDue(n, from, now)
			claimed.Add(int64(count))
			return err
		})
	}
	f.Equal(int64(timers), claimed.Load(), "D3: timers were lost")
	f.empty()
}

// scheduleWithin schedules timers that are due after begin, up to end.
func (f *fixture) scheduleWithin(timers int, begin, end, step store.Millis) {
	f.Helper()
	byShard := make([][]store.Entry, f.Store.Shards())
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range timers {
		e := store.Entry{Key: fmt.Sprintf("timer-%010d", i), ID: store.NewID(), Body: make([]byte, 32)}
		e.At = begin + 1 + store.Millis(rnd.Int64N(int64(end-begin)))
		if i%5 < 2 { // the last millisecond of a step, or the first of the next
			e.At -= (e.At - begin) % step
			e.At = min(max(e.At+store.Millis(i%5), begin+1), end)
		}
		n := f.shardOf(e.Key)
		byShard[n] = append(byShard[n], e)
	}
	f.eachShard(func(n int) error {
		for batch := range slices.Chunk(byShard[n], store.MaxItems) {
			if _, _, err := f.Store.Schedule(f.ctx, n, batch); err != nil {
				return err
			}
		}
		return nil
	})
}

// claimDue claims the due timers of a shard, acknowledges them, and returns their number. It returns
// an error unless each was due after from and at the latest at now.
func (f *fixture) claimDue(n int, from, now store.Millis) (count int, err error) {
	for {
		claimed, h, err := f.Store.Claim(f.ctx, n, newClaim(store.MaxItems))
		if err != nil || len(claimed.Leases) == 0 {
			return count, err
		}
		count += len(claimed.Leases)
		outcomes := make([]store.Outcome, len(claimed.Leases))
		for i, l := range claimed.Leases {
			if l.Due <= from || l.Due > now {
				return count, fmt.Errorf("D2: %q was due at %d, claimed after %d, at the latest at %d", l.Key, l.Due, from, now)
			}
			outcomes[i] = store.Outcome{Holder: l.Holder, Kind: store.Done}
		}
		results, _, err := f.Store.End(f.ctx, n, outcomes)
		if err != nil {
			return count, err
		}
		for i, r := range results {
			if r != store.Ended {
				return count, fmt.Errorf("the end of %q: %v", outcomes[i].Holder.Key, r)
			}
		}
		if h.NextDue == 0 || h.NextDue > now {
			return count, nil
		}
	}
}

// eachShard calls do for all shards, concurrently.
func (f *fixture) eachShard(do func(n int) error) {
	f.Helper()
	errs := make([]error, f.Store.Shards())
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() { errs[n] = do(n) })
	}
	wg.Wait()
	for _, err := range errs {
		f.NoError(err)
	}
}
