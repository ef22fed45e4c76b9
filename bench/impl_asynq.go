package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	asynqServers = 2
	asynqTask    = "timer"
)

// asynqRival is github.com/hibiken/asynq, whose tasks can be given a time.
var asynqRival = rival{
	name: "asynq",
	setup: "github.com/hibiken/asynq on a redis-server of its own (AOF, `everysec`); the 100 tasks of a batch " +
		"are enqueued at once, for it has no call for many; 2 servers of 500 handlers each, that look for tasks each 10 ms",
	workloads:   []string{"W13"},
	bytes:       2 << 10,
	unavailable: redisReady,
	run:         func(j Job) (Result, error) { return measureDurable(j, openAsynq) },
}

type asynqTimers struct {
	server    *server
	options   asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	raw       *redis.Client
	workers   []*asynq.Server
}

func openAsynq() (durableTimers, error) {
	s, err := startRedis()
	if err != nil {
		return nil, err
	}
	options := asynq.RedisClientOpt{
		Addr: s.addr, PoolSize: durableProducers * durableBatch,
		DialTimeout: serverLimit, ReadTimeout: serverLimit, WriteTimeout: serverLimit, // or it enqueues twice
	}
	return &asynqTimers{
		server: s, options: options,
		client:    asynq.NewClient(options),
		inspector: asynq.NewInspector(options),
		raw:       redis.NewClient(&redis.Options{Addr: s.addr}),
	}, nil
}

func (a *asynqTimers) Schedule(timers []durableTimer) error {
	var g errgroup.Group
	for _, t := range timers {
		g.Go(func() error {
			_, err := a.client.Enqueue(asynq.NewTask(asynqTask, t.body()), asynq.TaskID(t.key()), asynq.ProcessAt(t.due))
			return err
		})
	}
	return g.Wait()
}

func (a *asynqTimers) Work(ran func(id int)) error {
	mux := asynq.NewServeMux()
	mux.HandleFunc(asynqTask, func(_ context.Context, t *asynq.Task) error {
		ran(durableID(t.Payload()))
		return nil
	})
	for range asynqServers {
		w := asynq.NewServer(a.options, asynq.Config{
			Concurrency:              500,
			TaskCheckInterval:        10 * time.Millisecond,
			DelayedTaskCheckInterval: 10 * time.Millisecond,
			LogLevel:                 asynq.FatalLevel,
		})
		if err := w.Start(mux); err != nil {
			return err
		}
		a.workers = append(a.workers, w)
	}
	return nil
}

func (a *asynqTimers) Remaining() (int, error) {
	q, err := a.inspector.GetQueueInfo("default")
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return q.Size, nil
}

func (a *asynqTimers) Bytes() (int64, error) { return redisMemory(a.raw) }

func (a *asynqTimers) Close() error {
	for _, w := range a.workers {
		w.Shutdown()
	}
	return errors.Join(a.client.Close(), a.inspector.Close(), a.raw.Close(), a.server.stop())
}
