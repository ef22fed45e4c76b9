package alarm

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// descriptors counts the process's timerfds.
func descriptors(t *testing.T) (n int64) {
	all, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, path := range all {
		if to, err := os.Readlink(path); err == nil && to == "anon_inode:[timerfd]" {
			n++
		}
	}
	return n
}

// set returns an alarm that is set.
func set(d time.Duration) *Alarm {
	a := New(true)
	a.Set(d, false)
	return a
}

// An alarm has a descriptor from its first sleep without a context until it is closed or
// collected, and no child process gets it.
func TestDescriptor(t *testing.T) {
	before := descriptors(t)
	require.Equal(t, before, opened.Load())
	a := New(true)
	a.Set(time.Hour, true)
	require.Equal(t, before, descriptors(t))
	a.Set(time.Hour, false)
	require.True(t, a.onFD)
	require.Equal(t, before+1, descriptors(t))
	require.NoError(t, a.fd.conn.Control(func(fd uintptr) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
		require.Zero(t, errno)
		require.NotZero(t, flags&syscall.FD_CLOEXEC)
	}))
	a.Close()
	require.Equal(t, before, descriptors(t))
	require.Equal(t, before, opened.Load())

	set(time.Hour)
	for deadline := time.Now().Add(time.Minute); descriptors(t) > before || opened.Load() > before; {
		require.True(t, time.Now().Before(deadline), "%d descriptors, %d counted", descriptors(t), opened.Load())
		runtime.GC()
	}
}

// Alarms beyond maxOpen, or without a descriptor left, sleep on timers.
func TestDescriptorsRunOut(t *testing.T) {
	before := opened.Load()
	var all []*Alarm
	for range 1000 {
		all = append(all, set(time.Millisecond))
	}
	require.Equal(t, int64(maxOpen), opened.Load())
	require.Equal(t, int64(maxOpen), descriptors(t))
	for _, a := range all {
		a.Sleep(nil, nil)
		require.False(t, time.Now().Before(a.end))
		a.Close()
	}
	require.Equal(t, before, opened.Load())

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	a := set(time.Millisecond)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.Nil(t, a.fd)
	require.Equal(t, before, opened.Load())
	a.Sleep(nil, nil)
	require.False(t, time.Now().Before(a.end))
}

// After a sleep that ended late the next is on the timer, until one ends on time. One that waits
// for a context is on the timer, too.
func TestWhileBusy(t *testing.T) {
	a := set(0)
	defer a.Close()
	require.True(t, a.onFD)
	a.Sleep(nil, nil)
	a.Set(0, false)
	a.end = a.end.Add(-2 * tooLate) // no processor was free
	a.Sleep(nil, nil)
	a.Set(time.Millisecond, false)
	require.False(t, a.onFD)
	for deadline := time.Now().Add(time.Minute); !a.onFD; {
		require.True(t, time.Now().Before(deadline))
		a.Sleep(nil, nil)
		a.Set(time.Millisecond, false)
	}
	a.Sleep(nil, nil)
	a.late = false
	a.Set(time.Millisecond, true)
	require.False(t, a.onFD)
}
