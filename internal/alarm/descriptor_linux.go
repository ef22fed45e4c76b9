package alarm

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// longest is, roughly, the longest time that a 32-bit kernel accepts: 34 years. A longer sleep
// ends early.
const longest = 1 << 30 * time.Second

// descriptor is a timerfd on which the runtime's poller waits. It is never read: the runtime
// asks epoll for edges, and each expiry is one.
type descriptor struct {
	file        *os.File
	conn        syscall.RawConn
	cleanup     runtime.Cleanup
	wait        func(fd uintptr) (over bool)
	d           time.Duration // of the sleep
	started     bool          // the timer was started for this sleep
	interrupted bool          // the file's read deadline is in the past
}

// open returns a descriptor, or nil if there is none.
func open() *descriptor {
	const monotonic = 1 // the clock of the runtime's timers
	if opened.Add(1) > maxOpen {
		opened.Add(-1)
		return nil
	}
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		opened.Add(-1)
		return nil
	}
	f := &descriptor{file: os.NewFile(fd, "timerfd")}
	f.conn, _ = f.file.SyscallConn() // fails only for a nil file
	f.wait = f.start
	// If the alarm is forgotten, the file closes itself.
	f.cleanup = runtime.AddCleanup(f, func(struct{}) { opened.Add(-1) }, struct{}{})
	return f
}

func (f *descriptor) close() {
	f.cleanup.Stop()
	opened.Add(-1)
	_ = f.file.Close() // ends the sleep
}

func (f *descriptor) set(d time.Duration) {
	f.d, f.started = d, false
	if f.interrupted {
		f.interrupted = false
		_ = f.file.SetReadDeadline(time.Time{})
	}
}

// sleep calls wait before and after the poller's wait. The poller forgets earlier expiries
// before the first call, which starts the timer, so none is missed. After an interruption it
// calls wait no more, or never.
func (f *descriptor) sleep() { _ = f.conn.Read(f.wait) }

func (f *descriptor) start(fd uintptr) (over bool) {
	if f.started {
		return true
	}
	f.started = true
	spec := struct{ interval, value syscall.Timespec }{
		value: syscall.NsecToTimespec(int64(min(max(f.d, 1), longest))), // 0 would stop it
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno != 0
}

func (f *descriptor) interrupt() {
	f.interrupted = true
	_ = f.file.SetReadDeadline(time.Unix(1, 0))
}
