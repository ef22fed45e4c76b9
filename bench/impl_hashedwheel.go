package main

import (
	"time"

	"github.com/seed-782fa212/limbo/bench/hashedwheel"
)

var hashedwheelRival = rival{
	name: "hashedwheel",
	// Netty's own defaults are 100 ms and 512. With a tick near limbo's the lateness
	// can be compared, and with more buckets the rounds cost next to nothing.
	setup:     "Netty 4.1's HashedWheelTimer written out in Go: tick 1 ms, 65,536 ticks per wheel, tasks on the worker",
	workloads: timerWorkloads,
	bytes:     110,
	run:       inProcess(openHashedwheel),
}

type hashedTimers struct {
	timer *hashedwheel.Timer
	fire  func(uint64)
	fire0 func(*hashedwheel.Timeout)
}

func openHashedwheel(fire func(uint64)) (Timers[*hashedwheel.Timeout], error) {
	timer := hashedwheel.New(time.Millisecond, 1<<16)
	return &hashedTimers{timer, fire, func(*hashedwheel.Timeout) { fire(0) }}, timer.Start()
}

func (t *hashedTimers) Start(d time.Duration) *hashedwheel.Timeout {
	h, err := t.timer.NewTimeout(t.fire0, d)
	must(err)
	return h
}

func (t *hashedTimers) StartID(id uint64, d time.Duration) *hashedwheel.Timeout {
	fire := t.fire
	h, err := t.timer.NewTimeout(func(*hashedwheel.Timeout) { fire(id) }, d)
	must(err)
	return h
}

func (t *hashedTimers) Stop(h *hashedwheel.Timeout) bool { return h.Cancel() }

// Reset cancels the timeout and starts another with the same task, because a timeout cannot be
// moved.
func (t *hashedTimers) Reset(h *hashedwheel.Timeout, d time.Duration) (*hashedwheel.Timeout, bool) {
	if !h.Cancel() {
		return h, false
	}
	again, err := t.timer.NewTimeout(h.Task(), d)
	must(err)
	return again, true
}

func (t *hashedTimers) Close() { t.timer.Stop() }

// WaitPlaced waits until all timeouts are in their buckets.
func (t *hashedTimers) WaitPlaced() {
	for t.timer.Queued() > 0 {
		time.Sleep(time.Millisecond)
	}
}
