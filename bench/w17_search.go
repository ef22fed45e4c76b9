package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"golang.org/x/sync/errgroup"
)

var searchWorkload = workload{
	name: "W17", title: "search: pages of timers, and all dead letters requeued", size: "timers",
	metrics: []string{
		"first_page_ms", "next_page_ms", "prefix_ms", "absent_ms", "absent_dead_ms", "requeues_per_s", "longest_get_ms", "grown_bytes",
	},
	full:  sizes("timers", 1_000_000),
	quick: sizes("timers", 10_000),
}

const (
	searchPage = 100 // timers
	searchRare = 12  // timers whose keys have a prefix of their own
	searchReps = 5
)

// measureSearch measures an operator's requests, on one dead letter for every ten pending timers:
//
//   - the first page of the pending timers, and the next; a prefix that twelve of them have; a
//     topic that none of them has, and an error that no dead letter has: the medians of five.
//   - a requeue of all dead letters.
//
// During these requests another goroutine reads one timer after the other, from all shards: its
// longest wait is the longest time for which a shard was blocked. grown_bytes is the maximum
// growth of resident memory.
func measureSearch(j Job, d *limboDurable) (Result, error) {
	n := j.Params["timers"]
	m := Metrics{}
	if err := fillForSearch(d, n); err != nil {
		return Result{}, err
	}
	debug.FreeOSMemory()
	before, err := resident()
	if err != nil {
		return Result{}, err
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var group errgroup.Group
	var longest time.Duration
	var maxResident int64
	group.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			begun := time.Now()
			if _, err := d.timers.Get(context.Background(), rareKey(i%searchRare)); err != nil {
				return err
			}
			longest = max(longest, time.Since(begun))
			if i%10 == 0 {
				res, err := resident()
				if err != nil {
					return err
				}
				maxResident = max(maxResident, res)
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	err = errors.Join(searches(d, m), requeueAll(d, n/10, m))
	stop()
	err = errors.Join(err, group.Wait())
	m["longest_get_ms"] = ms(longest)
	m["grown_bytes"] = float64(max(maxResident-before, 0))
	return Result{Metrics: m}, err
}

func rareKey(i int) string { return fmt.Sprintf("rare/%02d", i) }

func fillForSearch(d *limboDurable, n int) error {
	due := time.Now().Add(durableAhead)
	add := func(n int, prefix, topic string, at time.Time) error {
		return produceDurables(n, func(batch []durableTimer) error {
			all := make([]durable.Timer, len(batch))
			for i, t := range batch {
				all[i] = durable.Timer{Key: prefix + t.key(), Topic: topic, Body: t.body(), At: at.Add(time.Duration(t.id) * time.Millisecond)}
			}
			_, err := d.timers.ScheduleMany(context.Background(), all)
			return err
		})
	}
	if err := add(n/10, "mail/", "mails", time.UnixMilli(1)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w, err := d.timers.NewWorker(func(context.Context, durable.Fired) error {
		return durable.Discard(errors.New("dial tcp: connection refused"))
	}, durable.WorkerOptions{Concurrency: 1_000})
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	for begun, dead := time.Now(), 0; dead < n/10; time.Sleep(10 * time.Millisecond) {
		st, err := d.timers.Stats(context.Background())
		if err != nil {
			return err
		}
		if dead = st.Dead; dead < n/10 && time.Since(begun) > durableLimit {
			return fmt.Errorf("%d of %d timers are dead after %v", dead, n/10, durableLimit)
		}
	}
	stop()
	if err := <-ran; err != nil {
		return err
	}
	if err := add(n, "order/", "orders", due); err != nil {
		return err
	}
	for i := range searchRare {
		if _, err := d.timers.Schedule(context.Background(), durable.Timer{Key: rareKey(i), Topic: "rare", At: due.Add(time.Duration(n/2) * time.Millisecond)}); err != nil {
			return err
		}
	}
	return nil
}

func searches(d *limboDurable, m Metrics) error {
	all := map[string][]float64{}
	page := func(metric string, want int, q durable.Query) (durable.Cursor, error) {
		begun, got := time.Now(), 0
		for info, err := range d.timers.List(context.Background(), q) {
			if err != nil {
				return q.After, err
			}
			q.After = info.Cursor()
			if got++; got == searchPage {
				break
			}
		}
		all[metric] = append(all[metric], ms(time.Since(begun)))
		if got != want {
			return q.After, fmt.Errorf("%s: %d timers, not %d", metric, got, want)
		}
		return q.After, nil
	}
	for range searchReps {
		next, err := page("first_page_ms", searchPage, durable.Query{})
		if err != nil {
			return err
		}
		for _, p := range []struct {
			metric string
			want   int
			q      durable.Query
		}{
			{"next_page_ms", searchPage, durable.Query{After: next}},
			{"prefix_ms", searchRare, durable.Query{Filter: durable.Filter{Prefix: "rare/"}}},
			{"absent_ms", 0, durable.Query{Filter: durable.Filter{Topic: "absent"}}},
			{"absent_dead_ms", 0, durable.Query{State: durable.Dead, Filter: durable.Filter{Error: "absent"}}},
		} {
			if _, err := page(p.metric, p.want, p.q); err != nil {
				return err
			}
		}
	}
	for metric, list := range all {
		m[metric] = newStat(list).Median
	}
	return nil
}

func requeueAll(d *limboDurable, n int, m Metrics) error {
	begun := time.Now()
	var last durable.BulkProgress
	for p, err := range d.timers.Bulk(context.Background(), durable.Bulk{Action: durable.BulkRequeue}) {
		if err != nil {
			return err
		}
		last = p
	}
	m["requeues_per_s"] = float64(n) / time.Since(begun).Seconds()
	if last.Changed != n {
		return fmt.Errorf("%d of %d dead letters were requeued", last.Changed, n)
	}
	return nil
}
