package main

import (
	"syscall"
	"time"
)

// pause sleeps for d, exact to the kernel's slack of some 50 µs. time.Sleep, in a
// process that is otherwise idle, is exact to a millisecond. A signal may end it
// early.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
