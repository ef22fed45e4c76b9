package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what all threads of this process together have used so far.
type usage struct {
	cpu      time.Duration // user and system
	switches int64         // voluntary context switches; each is followed by a wake-up
	peak     int64         // the most memory resident so far, in bytes
}

func used() usage {
	var r syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return usage{
		cpu:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		switches: int64(r.Nvcsw),         //nolint:unconvert // an int32 on 32-bit systems
		peak:     int64(r.Maxrss) * 1024, //nolint:unconvert // likewise
	}
}

// liveHeap returns the bytes on the heap after a full collection. The second
// collection frees what only finalizers and pools had kept.
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

// resident returns the memory of this process that is in RAM, in bytes.
func resident() (int64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("/proc/self/statm: %q", b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// memInfo returns a value of /proc/meminfo in bytes, or 0 if it cannot be read.
func memInfo(name string) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib * 1024
		}
	}
	return 0
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
func us(d time.Duration) float64 { return float64(d) / 1e3 }

// leadTime is the time to start n timers in before the first of them is due.
func (j Job) leadTime(n int) time.Duration {
	return time.Duration(max(j.Slack, 1)) * (150*time.Millisecond + time.Duration(n)*1500*time.Nanosecond)
}
