package storetest

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// claimTests test which due timers a claim leases, in which order, and how many.
var claimTests = []test{
	{"D11 in a lane by due time", check(laneOrder)},
	{"D11 lanes take turns", check(lanesTakeTurns)},
	{"D11 a full lane does not keep others waiting", check(laneStarvation)},
	{"D11 expired leases take turns with the lanes", check(expiredTakesTurns)},
	{"D11 expired leases are claimed in the order of their ends", check(expiredOrder)},
	{"D12 a claim is bounded by its count", check(claimMax)},
	{"D12 a claim is bounded by the size of its bodies", check(claimMaxBytes)},
	{"D6 a claim processes all expired leases, whatever its capacity", check(claimProcessesExpired)},
}

// topicOf returns a topic of a lane.
func topicOf(lane int) string {
	for i := 0; ; i++ {
		if topic := fmt.Sprint("topic", i); store.LaneOf(topic) == lane {
			return topic
		}
	}
}

// fill schedules n overdue timers in a lane; their keys are the lane's number and a count, in order
// of due times.
func (f *fixture) fill(lane, n int) {
	f.Helper()
	var entries []store.Entry
	for i := range n {
		e := entry(name(fmt.Sprint(lane, "-"), i))
		e.Topic, e.At = topicOf(lane), store.Millis(i+1)
		entries = append(entries, e)
	}
	for len(entries) > 0 {
		size := min(len(entries), store.MaxItems)
		f.schedule(entries[:size]...)
		entries = entries[size:]
	}
}

// lanesOf counts leases by lane.
func lanesOf(leases []store.Lease) (counts [store.Lanes]int) {
	for _, l := range leases {
		counts[store.LaneOf(l.Topic)]++
	}
	return counts
}

func laneOrder(f *fixture) {
	due := []store.Millis{50, 20, 90, 10, 20, 70, 1, 1}
	for i, at := range due {
		e := entry(name("k", i))
		e.At = at
		f.put(e)
	}
	var last store.Millis
	for range due {
		leases := f.claim(1)
		f.Len(leases, 1)
		f.GreaterOrEqual(leases[0].Due, last, "D11")
		last = leases[0].Due
	}
	for _, h := range f.held {
		f.Equal(store.Ended, f.end(store.Outcome{Holder: h, Kind: store.Release}))
	}
	var dues []store.Millis
	for _, l := range f.claim(5) {
		dues = append(dues, l.Due)
	}
	f.Equal([]store.Millis{1, 1, 10, 20, 20}, dues)
}

func lanesTakeTurns(f *fixture) {
	for lane := range store.Lanes {
		f.fill(lane, 10)
	}
	for _, c := range []struct {
		first, max int
		want       [store.Lanes]int
	}{
		{0, 4, [store.Lanes]int{1, 1, 1, 1}},
		{2, 1, [store.Lanes]int{0, 0, 1, 0}},
		{3, 2, [store.Lanes]int{1, 0, 0, 1}},
		{1, 7, [store.Lanes]int{1, 2, 2, 2}},
		{2, 6, [store.Lanes]int{1, 1, 2, 2}},
		{0, 13, [store.Lanes]int{4, 3, 3, 3}},
	} {
		claim := newClaim(c.max)
		claim.FirstLane = c.first
		claimed, _ := f.claimWith(0, claim)
		f.Equal(c.want, lanesOf(claimed.Leases), "D11: %+v", c)
	}
	// When some lanes are empty, the others get their share.
	claimed, _ := f.claimWith(0, newClaim(100))
	f.Len(claimed.Leases, 7)
}

func laneStarvation(f *fixture) {
	f.fill(1, 1000)
	f.fill(3, 3)
	for range 3 {
		claim := newClaim(2)
		claim.FirstLane = 1
		claimed, _ := f.claimWith(0, claim)
		f.Equal([store.Lanes]int{0, 1, 0, 1}, lanesOf(claimed.Leases), "D11: a lane waits although there is capacity for two")
	}
	claimed, _ := f.claimWith(0, newClaim(2))
	f.Equal([store.Lanes]int{0, 2, 0, 0}, lanesOf(claimed.Leases))
	// A claim with capacity for one goes from lane to lane with the worker.
	f.fill(0, 2)
	for _, first := range []int{0, 1, 0} {
		claim := newClaim(1)
		claim.FirstLane = first
		claimed, _ := f.claimWith(0, claim)
		want := [store.Lanes]int{}
		want[first] = 1
		f.Equal(want, lanesOf(claimed.Leases))
	}
}

func expiredTakesTurns(f *fixture) {
	const n = 11
	f.fill(0, n)
	f.Len(f.claim(n), n)
	f.advance(testLease + time.Second)
	f.fill(1, n)
	f.fill(2, n)
	claim := func(max, first int) (again, fromLanes int) {
		c := newClaim(max)
		c.FirstLane = first
		claimed, _ := f.claimWith(0, c)
		f.Len(claimed.Leases, max)
		for _, l := range claimed.Leases {
			if l.Attempt == 2 {
				again++
			} else {
				fromLanes++
			}
		}
		return again, fromLanes
	}
	again, fromLanes := claim(1, store.Lanes)
	f.Equal([]int{1, 0}, []int{again, fromLanes}, "D11: a claim with capacity for one never reaches the expired leases")
	again, fromLanes = claim(3, 0)
	f.Equal([]int{1, 2}, []int{again, fromLanes}, "D11: the lanes or the expired leases wait")
	again, fromLanes = claim(3, 2)
	f.Equal([]int{1, 2}, []int{again, fromLanes})
	again, fromLanes = claim(12, 1)
	f.Equal([]int{4, 8}, []int{again, fromLanes})
	again, fromLanes = claim(12, 1)
	f.Equal([]int{4, 8}, []int{again, fromLanes})
}

func expiredOrder(f *fixture) {
	f.putAll("c", "b", "a")
	for _, l := range f.claim(3) {
		f.extend(l.Holder, map[string]time.Duration{"b": time.Hour, "c": 2 * time.Hour, "a": 3 * time.Hour}[l.Key])
	}
	f.advance(4 * time.Hour)
	for _, key := range []string{"b", "c", "a"} {
		f.claimOne(key)
	}
	f.Empty(f.claim(1))
}

func claimMax(f *fixture) {
	f.fill(0, 30)
	f.fill(1, 3)
	for left := 33; left > 0; left -= min(left, 10) {
		f.Len(f.claim(10), min(left, 10))
		f.Equal(max(left-10, 0), f.stats(0).Waiting)
	}
	f.Empty(f.claim(10))
}

func claimMaxBytes(f *fixture) {
	put := func(key string, at store.Millis, size int) {
		e := entry(key)
		e.At, e.Body = at, make([]byte, size)
		f.Equal(store.Created, f.put(e).Kind)
	}
	claim := func(maxBytes int) []string {
		c := newClaim(10)
		c.MaxBytes = maxBytes
		claimed, _ := f.claimWith(0, c)
		return keysOf(byDueTime(claimed.Leases))
	}
	for i := range 10 {
		put(name("k", i), store.Millis(i+1), 100)
	}
	f.Equal([]string{"k0000", "k0001", "k0002"}, claim(399))
	f.Equal([]string{"k0003", "k0004", "k0005", "k0006"}, claim(400))
	f.Equal([]string{"k0007"}, claim(99)) // one, whatever its size
	f.Equal([]string{"k0008"}, claim(1))
	// The large one is not skipped.
	put("large", 11, store.MaxBody)
	put("small", 12, 1)
	put("empty", 13, 0)
	f.Equal([]string{"k0009"}, claim(1000))
	f.Equal([]string{"large"}, claim(1000))
	f.Equal([]string{"small", "empty"}, claim(1))
	// Claims of expired leases are bounded, too.
	f.advance(testLease + time.Second)
	total := 0
	for total < 13 {
		c := newClaim(20)
		c.MaxBytes = 250
		claimed, _ := f.claimWith(0, c)
		f.NotEmpty(claimed.Leases)
		size := 0
		for _, l := range claimed.Leases {
			size += len(l.Body)
		}
		f.True(size <= 250 || len(claimed.Leases) == 1, "D12: %d bytes", size)
		total += len(claimed.Leases)
	}
	f.Equal(13, total)
}

func claimProcessesExpired(f *fixture) {
	f.putAll("cancelled", "succeeded", "exhausted", "left")
	leases := f.claim(4)
	f.cancel("cancelled")
	next := entry("succeeded")
	next.At = store.MaxMillis
	f.put(next)
	f.advance(testLease + time.Second)
	extended, _ := f.extend(leases[3].Holder, testLease)
	f.Equal(store.Extended, extended)
	f.putAll("due")
	c := newClaim(1)
	c.MaxAttempts = 1
	claimed, _ := f.claimWith(0, c)
	f.Equal([]string{"due"}, keysOf(claimed.Leases))
	f.Equal(1, claimed.DeadLettered)
	f.absent("cancelled")
	f.fresh(next)
	f.Equal(store.Dead, f.get("exhausted").State)
	f.Equal(store.Leased, f.get("left").State)
}
