package timingwheel

import (
	"bytes"
	"runtime"
	"strconv"
)

// members knows the wheel's goroutines, so that Shutdown can wait for all of
// them but the one it is called on, if that is a worker (T13). The workers'
// lock guards it.
type members struct {
	advancer bool            // still there
	workers  int             // started and not gone
	ids      map[uint64]bool // of the workers; true: it is itself in Shutdown
	inside   int             // how many of ids are true
	// changed is closed and replaced when somebody leaves, or enters Shutdown;
	// nil while nobody waits.
	changed chan struct{}
}

func (m *members) enter() {
	if m.ids == nil {
		m.ids = map[uint64]bool{}
	}
	m.ids[goroutineID()] = false
}

func (m *members) leave() {
	delete(m.ids, goroutineID())
	m.workers--
	m.tell()
}

func (m *members) tell() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// excuse marks the calling goroutine, if it is a worker, as one that Shutdown
// must not wait for, and says so. recall ends that: its Shutdown returns, and
// the expiry function goes on.
func (m *members) excuse() bool {
	id := goroutineID()
	if _, worker := m.ids[id]; !worker {
		return false
	}
	m.ids[id] = true
	m.inside++
	m.tell()
	return true
}

func (m *members) recall() {
	m.ids[goroutineID()] = false
	m.inside--
}

// gone says whether all have left but those that are waiting here themselves.
func (m *members) gone() bool { return !m.advancer && m.workers == m.inside }

// wait is closed at the next change.
func (m *members) wait() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// goroutineID reads the number from the first line of a stack trace,
// "goroutine 42 [running]:". It takes about a microsecond, and is called when
// a worker starts and when one ends, and in Shutdown: nowhere else can a
// callback that shuts its own wheel down be told from a stranger, without
// asking every expiry function to pass a token.
func goroutineID() uint64 {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(line, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic("timingwheel: cannot read the goroutine's number from " + strconv.Quote(string(line)))
	}
	return id
}
