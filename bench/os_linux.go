package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the user and system time of all threads of another process, from the
// process's CPU clock. /proc counts in hundredths of a second, which is too coarse.
func processCPU(pid int) (time.Duration, error) {
	const sched = 2 // as in the clock number that clock_getcpuclockid(3) returns
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// pause sleeps for d, exact to the kernel's slack of some 50 µs. time.Sleep, in a
// process that is otherwise idle, is exact to a millisecond. A signal may end it
// early.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
