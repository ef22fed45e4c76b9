package main

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

var heapRival = rival{
	name:      "heap",
	setup:     "one mutex, container/heap, one goroutine that also runs the callbacks: java.util.Timer's design, with the index kept, so that stopping is O(log n)",
	workloads: timerWorkloads,
	bytes:     90,
	run:       inProcess(openHeap),
}

// heapTimers is java.util.Timer's design: a heap under one lock, and one
// goroutine that sleeps until its top is due.
type heapTimers struct {
	base  time.Time
	fire  func(uint64)
	fire0 func()
	wake  chan struct{} // capacity 1: the top has changed, or closed is set

	mu     sync.Mutex
	timers byDeadline
	closed bool
}

type heapTimer struct {
	due   int64 // nanoseconds after base
	run   func()
	index int // in the heap; -1 once it has run or was stopped
}

type byDeadline []*heapTimer

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].due < h[j].due }
func (h byDeadline) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byDeadline) Push(x any) {
	t := x.(*heapTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *byDeadline) Pop() any {
	old := *h
	last := len(old) - 1
	t := old[last]
	old[last] = nil
	*h = old[:last]
	t.index = -1
	return t
}

func openHeap(fire func(uint64)) (Timers[*heapTimer], error) {
	t := &heapTimers{base: time.Now(), fire: fire, fire0: func() { fire(0) }, wake: make(chan struct{}, 1)}
	go t.work()
	return t, nil
}

func (t *heapTimers) Start(d time.Duration) *heapTimer { return t.start(t.fire0, d) }

func (t *heapTimers) StartID(id uint64, d time.Duration) *heapTimer {
	fire := t.fire
	return t.start(func() { fire(id) }, d)
}

func (t *heapTimers) start(run func(), d time.Duration) *heapTimer {
	h := &heapTimer{due: t.after(d), run: run}
	t.mu.Lock()
	heap.Push(&t.timers, h)
	first := h.index == 0
	t.mu.Unlock()
	if first {
		t.signal()
	}
	return h
}

func (t *heapTimers) Stop(h *heapTimer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.index < 0 {
		return false
	}
	heap.Remove(&t.timers, h.index)
	return true
}

func (t *heapTimers) Reset(h *heapTimer, d time.Duration) (*heapTimer, bool) {
	due := t.after(d)
	t.mu.Lock()
	if h.index < 0 {
		t.mu.Unlock()
		return h, false
	}
	h.due = due
	heap.Fix(&t.timers, h.index)
	first := h.index == 0
	t.mu.Unlock()
	if first {
		t.signal()
	}
	return h, true
}

func (t *heapTimers) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.signal()
}

func (t *heapTimers) now() int64 { return int64(time.Since(t.base)) }

func (t *heapTimers) after(d time.Duration) int64 {
	due := t.now() + int64(d)
	if d > 0 && due < 0 {
		return math.MaxInt64
	}
	return due
}

func (t *heapTimers) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *heapTimers) work() {
	alarm := time.NewTimer(math.MaxInt64)
	defer alarm.Stop()
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return
		}
		if len(t.timers) == 0 {
			t.mu.Unlock()
			<-t.wake
			continue
		}
		if d := t.timers[0].due - t.now(); d > 0 {
			t.mu.Unlock()
			alarm.Reset(time.Duration(d))
			select {
			case <-alarm.C:
			case <-t.wake:
			}
			continue
		}
		h := heap.Pop(&t.timers).(*heapTimer)
		t.mu.Unlock()
		h.run()
	}
}
