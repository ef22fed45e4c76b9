package main

import (
	"sync/atomic"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

var gozeroRival = rival{
	name: "go-zero",
	// Its own user, collection.Cache, has 1 s and 300. It keeps a removed timer for up to one
	// round, here about a second.
	setup:     "github.com/zeromicro/go-zero core/collection.TimingWheel: interval 1 ms, 1,024 slots; keyed, the key is a counter; at most 200,000 timers, as it takes microseconds for each",
	workloads: timerWorkloads,
	maxSize:   200_000,
	bytes:     300,
	run:       inProcess(openGozero),
}

// gozeroTimers has keys for handles, as its users do. Every call goes through one
// channel to one goroutine, and does not return whether a timer was stopped.
type gozeroTimers struct {
	w    *collection.TimingWheel
	keys atomic.Uint64
}

func openGozero(fire func(uint64)) (Timers[uint64], error) {
	w, err := collection.NewTimingWheel(time.Millisecond, 1024, func(_, value any) {
		id, _ := value.(uint64)
		fire(id)
	})
	return &gozeroTimers{w: w}, err
}

func (t *gozeroTimers) Start(d time.Duration) uint64 {
	key := t.keys.Add(1)
	must(t.w.SetTimer(key, nil, d))
	return key
}

func (t *gozeroTimers) StartID(id uint64, d time.Duration) uint64 {
	key := t.keys.Add(1)
	must(t.w.SetTimer(key, id, d))
	return key
}

// Stop returns true also when the timer has run.
func (t *gozeroTimers) Stop(h uint64) bool { return t.w.RemoveTimer(h) == nil }

func (t *gozeroTimers) Reset(h uint64, d time.Duration) (uint64, bool) {
	return h, t.w.MoveTimer(h, d) == nil
}

func (t *gozeroTimers) Close() { t.w.Stop() }
