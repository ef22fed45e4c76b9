package main

import (
	"context"
	"os"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/redisstore"
)

var durableRedisRival = rival{
	name: "durable-redis",
	setup: "limbo's durable on a redis-server of its own (AOF, `everysec`), 16 shards; " +
		"one worker, 1,000 handlers at once",
	does:  []string{"W13"},
	bytes: 1 << 10,
	ready: redisReady,
	run:   func(j Job) (Result, error) { return durables(j, openDurableRedis) },
}

var durablePebbleRival = rival{
	name: "durable-pebble",
	setup: "limbo's durable in a folder, each commit synced (fsync), 16 shards; " +
		"one worker, 1,000 handlers at once",
	does:  []string{"W13"},
	bytes: 1 << 10,
	run:   func(j Job) (Result, error) { return durables(j, openDurablePebble) },
}

// limboDurable is limbo's durable on either engine.
type limboDurable struct {
	timers *durable.Timers
	bytes  func() (int64, error)
	close  []func() error

	stop context.CancelFunc // nil without a worker
	ran  chan error         // what the worker's Run has returned
}

func openDurableRedis() (_ durableTimers, err error) {
	d := &limboDurable{}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
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
	s, err := redisstore.Open(context.Background(), client, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, s.Close)
	if d.timers, err = durable.New(s, durable.Options{}); err != nil {
		return nil, err
	}
	d.close = append(d.close, func() error { return d.timers.Shutdown(context.Background()) })
	d.bytes = func() (int64, error) { return redisMemory(client) }
	return d, nil
}

func openDurablePebble() (durableTimers, error) {
	dir, err := os.MkdirTemp("", "limbo-bench-durable-")
	if err != nil {
		return nil, err
	}
	d := &limboDurable{close: []func() error{func() error { return os.RemoveAll(dir) }}}
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	d.close = append(d.close, s.Close)
	if d.timers, err = durable.New(s, durable.Options{}); err != nil {
		_ = d.Close()
		return nil, err
	}
	d.close = append(d.close, func() error { return d.timers.Shutdown(context.Background()) })
	d.bytes = func() (int64, error) { return folderBytes(dir) }
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

func (d *limboDurable) Left() (int, error) {
	st, err := d.timers.Stats(context.Background())
	return st.Waiting + st.Leased + st.Dead, err
}

func (d *limboDurable) Bytes() (int64, error) { return d.bytes() }

func (d *limboDurable) Close() error {
	var first error
	if d.stop != nil {
		d.stop()
		first = <-d.ran
	}
	for i := len(d.close) - 1; i >= 0; i-- {
		if err := d.close[i](); err != nil && first == nil {
			first = err
		}
	}
	return first
}
