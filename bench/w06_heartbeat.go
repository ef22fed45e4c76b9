package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

var heartbeatWorkload = workload{
	name: "W6", title: "heartbeat: idle limit 30 s, each connection touched every 5 to 25 s", size: "connections",
	metrics: []string{"ns_per_touch", "cpu_pct", "bytes_per_conn", "dropped"},
	full:    sizes("connections", 100_000, 1_000_000),
	quick:   sizes("connections", 100_000),
}

const (
	idleLimit  = 30 * time.Second
	touchBatch = 20 * time.Millisecond // in the paced part: 50 wake-ups a second, for all rivals
)

// moveInterval is the mean time between two moves of a lazily postponed timer: each touch only
// records the new deadline, and the timer moves when the old one comes. It then moves to 30 s
// after the last touch, which was 8.6 s ago on average, as touches are 5 to 25 s apart.
const moveInterval = idleLimit - 8_600*time.Millisecond

// heartbeat holds one timer for each connection and postpones its deadline whenever the
// connection sends a message, 5 to 25 s after its previous one.
//
// The first part touches timers at the rate of that many connections, in real time: cpu_pct. A lazy
// design does its work some time after a touch. To include that work, each connection begins in the
// middle of its exchange of messages: its timer is started as if it had last moved some time ago,
// evenly spread over moveInterval, and is postponed at once to its deadline.
//
// The second part makes the same touches in the same order without pauses: ns_per_touch. dropped
// is the number of connections that expired. As none is silent for 30 s, it must be 0.
func heartbeat[H any](j Job, open opener[H]) (Result, error) {
	n, r := j.Params["connections"], j.seed()
	pacedSpan, unpacedSpan := 10*time.Second, 2*time.Second
	if j.Quick {
		pacedSpan, unpacedSpan = 700*time.Millisecond, 100*time.Millisecond
	}
	idle, touches := drawTouches(n, r, pacedSpan)

	var dropped atomic.Int64
	t, err := open(func(uint64) { dropped.Add(1) })
	if err != nil {
		return Result{}, err
	}
	before := liveHeap()
	conns := make([]H, n)
	lead := j.leadTime(n) + time.Duration(n)*2*time.Microsecond // for the collections below
	if !j.Quick {
		lead += 3 * time.Second // so that no timer is due within one revolution of a wheel
	}
	base := time.Now()
	for i := range conns {
		left := lead + idleLimit - time.Duration(idle[i])*time.Millisecond
		moved := min(left, lead+r.delay(0, moveInterval))
		conns[i] = t.StartID(uint64(i), moved-time.Since(base))
		conns[i], _ = t.Reset(conns[i], left-time.Since(base))
	}
	waitPlaced(t)
	held := liveHeap() - before
	if time.Since(base) > lead {
		return Result{TooSlow: true}, nil
	}
	time.Sleep(time.Until(base.Add(lead)))

	base = time.Now()
	cpu := currentUsage().cpu
	next := 0
	for at := touchBatch; at <= pacedSpan; at += touchBatch {
		time.Sleep(time.Until(base.Add(at)))
		for end := touches.until[at/time.Millisecond-1]; next < end; next++ {
			c := touches.conns[next]
			conns[c], _ = t.Reset(conns[c], idleLimit)
		}
	}
	cpu = currentUsage().cpu - cpu
	wall := time.Since(base)

	// The rest of the touches first, then all again.
	total := 0
	start := time.Now()
	for total == 0 || time.Since(start) < unpacedSpan {
		for range 256 {
			if next == len(touches.conns) {
				next = 0
			}
			c := touches.conns[next]
			conns[c], _ = t.Reset(conns[c], idleLimit)
			next++
		}
		total += 256
	}
	elapsed := time.Since(start)
	runtime.KeepAlive(idle)
	return Result{Metrics: Metrics{
		"ns_per_touch":   float64(elapsed) / float64(total),
		"cpu_pct":        100 * float64(cpu) / float64(wall),
		"bytes_per_conn": float64(held) / float64(n),
		"dropped":        float64(dropped.Load()),
	}}, nil
}

// touches is the sequence of connections that send a message, and how many have done so by the
// end of each millisecond.
type touches struct {
	conns []uint32
	until []int
}

// drawTouches draws which connection sends a message when, for the duration of the measurement
// and then for as many further touches as there are connections. idle is the time since each
// connection's last message at the beginning, in ms.
func drawTouches(n int, r rng, span time.Duration) (idle []uint32, all touches) {
	const ring = 25_001 // ms; a connection is never silent for longer
	heads := make([]uint32, ring)
	links := make([]uint32, n+1) // connections from 1, 0 ends a list
	put := func(at int, c uint32) {
		links[c] = heads[at%ring]
		heads[at%ring] = c
	}
	idle = make([]uint32, n)
	for i := range idle {
		gap := 5_000 + r.below(20_001)
		for gap < r.below(25_001) { // a moment falls into a long silence more often than into a short one
			gap = 5_000 + r.below(20_001)
		}
		idle[i] = uint32(r.below(gap))
		put(int(gap)-int(idle[i]), uint32(i)+1)
	}
	enough := 0
	for now := 0; now < int(span/time.Millisecond) || len(all.conns) < enough+n; now++ {
		c := heads[now%ring]
		heads[now%ring] = 0
		for c != 0 {
			next := links[c]
			all.conns = append(all.conns, c-1)
			put(now+5_000+int(r.below(20_001)), c)
			c = next
		}
		all.until = append(all.until, len(all.conns))
		if now == int(span/time.Millisecond)-1 {
			enough = len(all.conns)
		}
	}
	return idle, all
}
