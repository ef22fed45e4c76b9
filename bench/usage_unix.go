//go:build unix

package main

import (
	"syscall"
	"time"
)

func currentUsage() usage {
	var r syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return usage{
		cpu:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		switches: int64(r.Nvcsw),         //nolint:unconvert // an int32 on 32-bit systems
		peak:     int64(r.Maxrss) * 1024, //nolint:unconvert // likewise
	}
}
