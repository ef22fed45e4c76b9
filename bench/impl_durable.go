package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/redisstore"
)

var durableRedisRival = rival{
	name: "durable-redis",
	setup: "limbo's durable on a redis-server of its own (AOF, `everysec`), 16 shards; " +
		"one worker, 1,000 handlers at once",
	workloads:   []string{"W13", "W16", "W17"},
	bytes:       1 << 10,
	unavailable: redisReady,
	run:         func(j Job) (Result, error) { return durableWorkloads(j, openDurableRedis) },
}

var durablePebbleRival = rival{
	name: "durable-pebble",
	setup: "limbo's durable in a folder, each commit synced (fsync), 16 shards; " +
		"one worker, 1,000 handlers at once",
	workloads: []string{"W13", "W16", "W17"},
	bytes:     1 << 10,
	run:       func(j Job) (Result, error) { return durableWorkloads(j, openDurablePebble) },
}

func durableWorkloads(j Job, open func() (durableTimers, error)) (Result, error) {
	switch j.Workload {
	case "W16":
		return measureSchedules(j, open)
	case "W17":
		var res Result
		err := withDurable(open, func(d durableTimers) (err error) {
			res, err = measureSearch(j, d.(*limboDurable))
			return err
		})
		return res, err
	}
	return measureDurable(j, open)
}

// limboDurable is limbo's durable on either engine.
type limboDurable struct {
	timers *durable.Timers
	bytes  func() (int64, error)
	close  []func() error // called from the last to the first

	stop context.CancelFunc // nil without a worker
	ran  chan error         // result of the worker's Run
}

func openDurableRedis() (durableTimers, error) {
	return openLimboDurable(func(d *limboDurable) (durable.Store, error) {
		server, err := startRedis()
		if err != nil {
			return nil, err
		}
		d.close = append(d.close, server.stop)
		client, err := redisstore.NewClient("redis://" + server.addr)
		if err != nil {
			return nil, err
		}
		d.close = append(d.close, client.Close)
		d.bytes = func() (int64, error) { return redisMemory(client) }
		return redisstore.Open(context.Background(), client, redisstore.Options{})
	})
}

func openDurablePebble() (durableTimers, error) {
	return openLimboDurable(func(d *limboDurable) (durable.Store, error) {
		dir, err := os.MkdirTemp("", "limbo-bench-durable-")
		if err != nil {
			return nil, err
		}
		d.close = append(d.close, func() error { return os.RemoveAll(dir) })
		d.bytes = func() (int64, error) { return folderBytes(dir) }
		return pebblestore.Open(dir, pebblestore.Options{})
	})
}

// openLimboDurable opens timers on the store that open returns. open sets bytes, and adds its
// own resources to close.
func openLimboDurable(open func(*limboDurable) (durable.Store, error)) (_ durableTimers, err error) {
	d := &limboDurable{}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	s, err := open(d)
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, s.Close)
	if d.timers, err = durable.New(s, durable.Options{}); err != nil {
		return nil, err
	}
	d.close = append(d.close, func() error { return d.timers.Shutdown(context.Background()) })
	return d, nil
}

func (d *limboDurable) Schedule(timers []durableTimer) error {
	all := make([]durable.Timer, len(timers))
	for i, t := range timers {
		all[i] = durable.Timer{Key: t.key(), Body: t.body(), At: t.due}
	}
	_, err := d.timers.ScheduleMany(context.Background(), all)
	return err
}

func (d *limboDurable) Put(timers []durableTimer) error {
	var calls errgroup.Group
	for _, t := range timers {
		calls.Go(func() error {
			const day = 24 * time.Hour
			_, _, err := d.timers.PutSchedule(context.Background(), durable.Schedule{
				Key: t.key(), Body: t.body(), Every: day, Offset: time.Duration(t.due.UnixMilli()) * time.Millisecond % day,
			})
			return err
		})
	}
	return calls.Wait()
}

func (d *limboDurable) Schedules() (int, error) {
	st, err := d.timers.Stats(context.Background())
	return st.Schedules, err
}

func (d *limboDurable) Work(ran func(id int)) error {
	handle := func(_ context.Context, f durable.Fired) error {
		ran(durableID(f.Body))
		return nil
	}
	w, err := d.timers.NewWorker(handle, durable.WorkerOptions{Concurrency: 1_000})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.ran = stop, make(chan error, 1)
	go func() { d.ran <- w.Run(ctx) }()
	return nil
}

func (d *limboDurable) Remaining() (int, error) {
	st, err := d.timers.Stats(context.Background())
	return st.Waiting + st.Leased + st.Dead, err
}

func (d *limboDurable) Bytes() (int64, error) { return d.bytes() }

func (d *limboDurable) Close() error {
	var err error
	if d.stop != nil {
		d.stop()
		err = <-d.ran
	}
	for _, end := range slices.Backward(d.close) {
		err = errors.Join(err, end())
	}
	return err
}
