package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-782fa212/limbo/internal/openfiles"
)

var longPollWorkload = workload{
	name: "W12", title: "long poll: fetches parked at a broker, woken one at a time by a produce", size: "parked",
	metrics: []string{"wake_p50_us", "wake_p99_us", "idle_cpu_pct"},
	full:    sizes("parked", 10_000),
	quick:   sizes("parked", 1_000),
}

// quickIdle is how long a quick run measures an idle server. Tests set it.
var quickIdle = 500 * time.Millisecond

// pollBytes is roughly the memory of a parked fetch and its connection, at client and server
// together.
const pollBytes = 100 << 10

// longPoll parks a fetch on each partition of a topic, each on its own connection, as consumers
// do. Several on one connection could not be woken one at a time: both brokers respond in the
// order of the requests, so each fetch would wait for those parked before it.
//
// Once all are parked, it measures the server's CPU while nothing happens. Then, repeatedly, it
// produces a record to one partition with acks=all. The time is from just before the record's
// bytes are written until its consumer has read the fetch's response. The fetch is then sent
// again, followed by half a millisecond without activity, after which it is parked and the
// server as idle as before.
//
// Client and server share the machine's cores.
func longPoll[P parked](j Job, name, arg string, park func(addr string, n int) (P, error)) (Result, error) {
	return withOwnServer(j, name, arg, func(s *server) (Result, error) {
		polls, err := park(s.addr, j.Params["parked"])
		if err != nil {
			return Result{}, err
		}
		defer polls.close()
		return measureParked(j, s, 2*time.Second, polls.wake)
	})
}

// withOwnServer starts one of servers, if enough files may be open for the polls, and stops it
// after measure.
func withOwnServer(j Job, name, arg string, measure func(*server) (Result, error)) (Result, error) {
	if err := allowOpenFiles(j.Params["parked"]); err != nil {
		return Result{}, err
	}
	s, err := startOwnServer(name, arg)
	if err != nil {
		return Result{}, err
	}
	res, err := measure(s)
	return res, errors.Join(err, s.stop())
}

// parked is the client of a server with parked polls.
type parked interface {
	wake(i int) (time.Duration, error) // see measureParked
	close()
}

// measureParked measures a server with parked polls: first its CPU during an idle time of idleSpan,
// or of quickIdle in a quick run, then the time to wake one poll after the other, in random
// order. wake wakes a poll, returns how long that took, and parks it again.
func measureParked(j Job, s *server, idleSpan time.Duration, wake func(i int) (time.Duration, error)) (Result, error) {
	n, warm, samples := j.Params["parked"], 100, 1_000
	if j.Quick {
		warm, samples, idleSpan = 20, 200, quickIdle
	}
	m := Metrics{}
	if err := s.waitIdle(); err != nil {
		return Result{}, err
	}
	runtime.GC()
	switch pct, err := s.idleCPU(idleSpan); {
	case err == nil:
		m["idle_cpu_pct"] = pct
	case !errors.Is(err, errors.ErrUnsupported):
		return Result{}, err
	}

	r := j.seed()
	times := hdrhistogram.New(1, int64(time.Minute), 3)
	for i, last := 0, -1; i < warm+samples; i++ {
		pause(500 * time.Microsecond)
		next := int(r.below(uint64(n)))
		if next == last { // it may not be parked again yet
			next = (next + 1) % n
		}
		took, err := wake(next)
		if err != nil {
			return Result{}, err
		}
		if last = next; i >= warm {
			_ = times.RecordValue(int64(took))
		}
	}
	at := func(q float64) time.Duration { return time.Duration(times.ValueAtQuantile(q * 100)) }
	m["wake_p50_us"], m["wake_p99_us"] = us(at(.5)), us(at(.99))
	res := Result{Metrics: m}
	res.setQuantiles(func(q float64) float64 { return ms(at(q)) })
	return res, nil
}

// idleCPU returns the percentage of one core that the server uses while it gets no requests.
func (s *server) idleCPU(span time.Duration) (pct float64, err error) {
	begun := time.Now()
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	time.Sleep(span)
	after, err := s.cpu()
	return float64(after-before) / float64(time.Since(begun)) * 100, err
}

// otherFiles is the maximum number of open files of a process other than its connections.
const otherFiles = 128

// allowOpenFiles returns an error if this process may not open n connections. The server has the
// same limit.
func allowOpenFiles(n int) error {
	if need := n + otherFiles; need > openfiles.Limit() {
		return fmt.Errorf("needs %d open files, %d are allowed", need, openfiles.Limit())
	}
	return nil
}
