package main

import (
	"syscall"
	"time"
)

// pause sleeps for d, but for the kernel's slack of some 50 µs. time.Sleep, in
// a process that is idle otherwise, sleeps in whole milliseconds.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // woken early by a signal: the caller looks at the clock
}
