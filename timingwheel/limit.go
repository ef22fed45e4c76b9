package timingwheel

import "sync/atomic"

// pendingLimit bounds the timers of all shards together.
type pendingLimit struct {
	max  int64        // 0: no bound, and nothing is counted
	held atomic.Int64 // any goroutine writes
}

// reserve counts a timer in, unless max are held.
func (l *pendingLimit) reserve() bool {
	if l.max == 0 {
		return true
	}
	// Not Add, and back if it was too much: a second caller would be refused
	// for the sake of one that is on its way out.
	for {
		n := l.held.Load()
		if n >= l.max {
			return false
		}
		if l.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *pendingLimit) release(n int) {
	if l.max != 0 {
		l.held.Add(-int64(n))
	}
}
