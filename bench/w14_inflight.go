package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

var inFlightWorkload = workload{
	name: "W14", title: "calls: a request and its reply, beside others in flight", size: "in_flight",
	metrics: []string{"ns_per_op", "allocs_per_op"},
	full:    withGoroutines(sizes("in_flight", 100_000), 1, 2),
	quick:   withGoroutines(sizes("in_flight", 10_000), 1, 2),
}

// inFlightRequests is a table of requests in flight: each waits for its reply by an id, for at
// most a timeout, or until its context is done.
type inFlightRequests interface {
	// do returns the reply, or the reason why there is none.
	do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error)
	reply(id, value uint64) bool
	// hold adds a request that waits without a goroutine.
	hold(id uint64, timeout time.Duration) error
}

// inFlight adds requests that get no reply, then repeatedly makes others that get a reply as
// soon as they are sent. The same goroutine makes a request and its reply, to measure the table,
// and not the time to wake a goroutine, which is the same for all. If two goroutines do so,
// ns_per_op is the wall time divided by the requests of both.
func inFlight(j Job, r inFlightRequests) (Result, error) {
	for id := range j.Params["in_flight"] {
		if err := r.hold(uint64(id), time.Hour); err != nil {
			return Result{}, err
		}
	}
	warm, span := spans(j)
	if _, err := replyTo(j, r, 1, warm); err != nil {
		return Result{}, err
	}
	liveHeap() // so that no earlier garbage is collected during the measurement
	allocs, start := mallocs(), time.Now()
	total, err := replyTo(j, r, 2, span)
	took, allocated := time.Since(start), mallocs()-allocs
	return Result{Metrics: Metrics{
		"ns_per_op":     float64(took) / float64(total),
		"allocs_per_op": float64(allocated) / float64(total),
	}}, err
}

// replyTo makes requests on several goroutines at once for the duration of span, and returns how
// many. call makes the ids of different calls distinct.
func replyTo(j Job, r inFlightRequests, call uint64, span time.Duration) (int64, error) {
	var group errgroup.Group
	var total atomic.Int64
	for g := range j.Params["goroutines"] {
		group.Go(func() error {
			n, err := replyAlone(r, call<<56|uint64(g+1)<<40, span)
			total.Add(int64(n))
			return err
		})
	}
	err := group.Wait()
	return total.Load(), err
}

func replyAlone(r inFlightRequests, first uint64, span time.Duration) (n int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id := first
	send := func() error {
		r.reply(id, ^id)
		return nil
	}
	for end := time.Now().Add(span); n == 0 || time.Now().Before(end); n += 64 {
		for range 64 {
			id++
			got, err := r.do(ctx, id, 30*time.Second, send)
			if err != nil || got != ^id {
				return n, fmt.Errorf("request %d was answered with %d, %w", id, got, err)
			}
		}
	}
	return n, nil
}
