package main

import "time"

var stdlibRival = rival{
	name:      "stdlib",
	setup:     "time.AfterFunc",
	workloads: timerWorkloads,
	bytes:     190,
	run:       inProcess(openStdlib),
}

type stdlibTimers struct {
	fire  func(uint64)
	fire0 func()
}

func openStdlib(fire func(uint64)) (Timers[*time.Timer], error) {
	return &stdlibTimers{fire, func() { fire(0) }}, nil
}

func (t *stdlibTimers) Start(d time.Duration) *time.Timer { return time.AfterFunc(d, t.fire0) }

func (t *stdlibTimers) StartID(id uint64, d time.Duration) *time.Timer {
	fire := t.fire
	return time.AfterFunc(d, func() { fire(id) })
}

func (t *stdlibTimers) Stop(h *time.Timer) bool { return h.Stop() }

func (t *stdlibTimers) Reset(h *time.Timer, d time.Duration) (*time.Timer, bool) {
	return h, h.Reset(d)
}

func (t *stdlibTimers) Close() {}
