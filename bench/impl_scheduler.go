package main

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

var schedulerRival = rival{
	name:      "scheduler",
	setup:     "limbo's Scheduler, zero Options: tick 500 µs",
	workloads: timerWorkloads,
	bytes:     90,
	run:       inProcess(openScheduler),
}

type schedulerTimers struct {
	s     *scheduler.Scheduler
	fire  func(uint64)
	fire0 func()
}

func openScheduler(fire func(uint64)) (Timers[scheduler.Call], error) {
	s, err := scheduler.New(scheduler.Options{})
	return &schedulerTimers{s, fire, func() { fire(0) }}, err
}

func (t *schedulerTimers) Start(d time.Duration) scheduler.Call {
	h, err := t.s.AfterFunc(d, t.fire0)
	must(err)
	return h
}

func (t *schedulerTimers) StartID(id uint64, d time.Duration) scheduler.Call {
	fire := t.fire
	h, err := t.s.AfterFunc(d, func() { fire(id) })
	must(err)
	return h
}

func (t *schedulerTimers) Stop(h scheduler.Call) bool { return h.Stop() }

func (t *schedulerTimers) Reset(h scheduler.Call, d time.Duration) (scheduler.Call, bool) {
	return h, h.Reset(d)
}

func (t *schedulerTimers) Close() {
	_, err := t.s.Shutdown(context.Background(), timingwheel.Discard)
	must(err)
}
