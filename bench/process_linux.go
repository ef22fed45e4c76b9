package main

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel end the process when the thread that starts it
// ends, as when this process is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// processCPU is what another process has used, user and system time of all its
// threads, from its CPU clock: /proc counts in hundredths of a second, which are
// a whole per cent of one.
func processCPU(pid int) (time.Duration, error) {
	const sched = 2 // as clock_getcpuclockid(3) makes the clock's number
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
