package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkStartStop(b *testing.B) {
	for _, pending := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("impl=wheel/pending=%d", pending), func(b *testing.B) {
			w, _ := New(func(uint64) {}, Options{})
			defer w.Shutdown(context.Background(), Discard)
			for i := range pending {
				w.Schedule(uint64(i), time.Minute+rand.N(59*time.Minute))
			}
			b.ReportAllocs()
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				t, _ := w.Schedule(1, time.Second+time.Duration(r.Int64N(int64(30*time.Second))))
				w.Stop(t)
			}
		})
		b.Run(fmt.Sprintf("impl=stdlib/pending=%d", pending), func(b *testing.B) {
			held := make([]*time.Timer, pending)
			for i := range held {
				held[i] = time.AfterFunc(time.Minute+rand.N(59*time.Minute), func() {})
			}
			b.ReportAllocs()
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				t := time.AfterFunc(time.Second+time.Duration(r.Int64N(int64(30*time.Second))), func() {})
				t.Stop()
			}
			for _, t := range held {
				t.Stop()
			}
		})
	}
}

// BenchmarkHold holds 1M timers. It reports the live heap per timer, including its 8-byte
// handle or its pointer, and the cost of a full collection.
func BenchmarkHold(b *testing.B) {
	const n = 1_000_000
	measure := func(b *testing.B, start func(i int), stop func(i int), done func()) {
		for b.Loop() {
			before := liveHeap()
			for i := range n {
				start(i)
			}
			held := liveHeap()
			t := time.Now()
			runtime.GC()
			gc := time.Since(t)
			for _, i := range rand.Perm(n) {
				stop(i)
			}
			b.ReportMetric(float64(held-before)/n, "B/timer")
			b.ReportMetric(float64(gc.Microseconds())/1000, "gc-ms")
			done()
			b.ReportMetric(float64(max(liveHeap()-before, 0))/float64(held-before)*100, "%kept")
		}
	}
	delay := func() time.Duration { return time.Minute + rand.N(59*time.Minute) }
	b.Run("impl=wheel", func(b *testing.B) {
		w, _ := New(func(uint64) {}, Options{})
		defer w.Shutdown(context.Background(), Discard)
		var handles []Timer
		measure(b, func(i int) {
			if i == 0 {
				handles = make([]Timer, n)
			}
			handles[i], _ = w.Schedule(uint64(i), delay())
		}, func(i int) { w.Stop(handles[i]) }, func() { handles = nil })
	})
	b.Run("impl=stdlib", func(b *testing.B) {
		var handles []*time.Timer
		measure(b, func(i int) {
			if i == 0 {
				handles = make([]*time.Timer, n)
			}
			handles[i] = time.AfterFunc(delay(), func() { sink.Add(uint64(i)) })
		}, func(i int) { handles[i].Stop() }, func() { handles = nil })
	})
}

var sink atomic.Uint64

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkBurst makes 1M timers due in one tick while this goroutine schedules and stops. It
// reports its longest delay and the time that the workers took.
func BenchmarkBurst(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		var ran atomic.Int64
		soon := make(chan struct{})
		w, _ := New(func(i uint64) {
			if i == n {
				close(soon)
				return
			}
			ran.Add(1)
		}, Options{})
		due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
		for i := range n {
			w.ScheduleAt(uint64(i), due)
		}
		w.ScheduleAt(n, due.Add(-50*time.Millisecond))
		<-soon
		waits := make([]time.Duration, 0, 4*n) // growing would start the collector
		for ran.Load() < n {
			t := time.Now()
			h, _ := w.Schedule(0, time.Hour)
			waits = append(waits, time.Since(t))
			w.Stop(h)
		}
		drained := time.Since(due)
		slices.Sort(waits)
		b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "max-µs")
		b.ReportMetric(float64(waits[len(waits)*9999/10000].Microseconds()), "p9999-µs")
		b.ReportMetric(float64(drained.Milliseconds()), "drain-ms")
		w.Shutdown(context.Background(), Discard)
	}
}

// BenchmarkExpire runs a backlog of 1M timers on one worker.
func BenchmarkExpire(b *testing.B) {
	const n = 1_000_000
	var took time.Duration
	for b.Loop() {
		left := n
		done := make(chan struct{})
		w, _ := New(func(uint64) {
			if left--; left == 0 {
				close(done)
			}
		}, Options{Workers: 1})
		due := time.Now().Add(500 * time.Millisecond)
		for i := range uint64(n) {
			w.ScheduleAt(i, due)
		}
		<-done
		took += time.Since(due)
		w.Shutdown(context.Background(), Discard)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(n*b.N), "ns/timer")
}

// BenchmarkStopMany stops many timers in random order.
func BenchmarkStopMany(b *testing.B) {
	for _, n := range []int{200_000, 1_000_000} {
		b.Run(fmt.Sprintf("impl=wheel/timers=%d", n), func(b *testing.B) {
			w, _ := New(func(uint64) {}, Options{})
			defer w.Shutdown(context.Background(), Discard)
			stopMany(b, n, func(d time.Duration) Timer {
				t, _ := w.Schedule(1, d)
				return t
			}, w.Stop)
		})
		b.Run(fmt.Sprintf("impl=stdlib/timers=%d", n), func(b *testing.B) {
			stopMany(b, n, func(d time.Duration) *time.Timer { return time.AfterFunc(d, func() {}) }, (*time.Timer).Stop)
		})
	}
}

func stopMany[T any](b *testing.B, n int, start func(time.Duration) T, stop func(T) bool) {
	r := rand.New(rand.NewPCG(1, 2))
	held := make([]T, n)
	stopped := time.Duration(0)
	for b.Loop() {
		for i := range held {
			held[i] = start(time.Minute + time.Duration(r.Int64N(int64(59*time.Minute))))
		}
		order := r.Perm(n)
		runtime.GC()
		from := time.Now()
		for _, i := range order {
			stop(held[i])
		}
		stopped += time.Since(from)
	}
	b.ReportMetric(float64(stopped.Nanoseconds())/float64(n*b.N), "ns/stop")
}
