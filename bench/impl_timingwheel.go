package main

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

var timingwheelRival = rival{
	name:      "timingwheel",
	setup:     "limbo's Wheel[uint64], zero Options: tick 500 µs",
	workloads: timerWorkloads,
	bytes:     50,
	run:       inProcess(openTimingwheel),
}

type wheelTimers struct{ w *timingwheel.Wheel[uint64] }

func openTimingwheel(fire func(uint64)) (Timers[timingwheel.Timer], error) {
	w, err := timingwheel.New(fire, timingwheel.Options{})
	return &wheelTimers{w}, err
}

func (t *wheelTimers) Start(d time.Duration) timingwheel.Timer {
	h, err := t.w.Schedule(0, d)
	must(err)
	return h
}

func (t *wheelTimers) StartID(id uint64, d time.Duration) timingwheel.Timer {
	h, err := t.w.Schedule(id, d)
	must(err)
	return h
}

func (t *wheelTimers) Stop(h timingwheel.Timer) bool { return t.w.Stop(h) }

func (t *wheelTimers) Reset(h timingwheel.Timer, d time.Duration) (timingwheel.Timer, bool) {
	return h, t.w.Reset(h, d)
}

func (t *wheelTimers) Close() {
	_, err := t.w.Shutdown(context.Background(), timingwheel.Discard)
	must(err)
}
