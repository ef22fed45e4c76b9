package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// usage is the resource usage of all threads of this process so far.
type usage struct {
	cpu      time.Duration // user and system
	switches int64         // voluntary context switches; each is followed by a wake-up
	peak     int64         // peak resident memory so far, in bytes
}

// liveHeap returns the bytes on the heap after a full collection. A second collection frees
// objects that only finalizers and pools had kept.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// resident returns the resident memory of this process, in bytes.
func resident() (int64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var virtual, pages int64
	if _, err := fmt.Sscan(string(b), &virtual, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %q: %w", b, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// memInfo returns a value of /proc/meminfo in bytes, or 0 if it cannot be read.
func memInfo(name string) int64 {
	var kib int64
	_, _ = fmt.Sscan(procValue("/proc/meminfo", name), &kib)
	return kib * 1024
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
func us(d time.Duration) float64 { return float64(d) / 1e3 }

// leadTime is the time for starting n timers before the first of them is due.
func (j Job) leadTime(n int) time.Duration {
	return time.Duration(max(j.Slack, 1)) * (150*time.Millisecond + time.Duration(n)*1500*time.Nanosecond)
}

// spans returns the warm-up time of a loop of operations, and the time for which it is measured.
func spans(j Job) (warm, span time.Duration) {
	if j.Quick {
		return 20 * time.Millisecond, 100 * time.Millisecond
	}
	return 250 * time.Millisecond, time.Second
}
