package timingwheel

import "sync/atomic"

// pendingLimit bounds the timers of all shards together.
type pendingLimit struct {
	max  int64        // 0: no bound, and no count
	held atomic.Int64 // any goroutine writes
}

// reserve counts one more timer, unless max are held.
func (l *pendingLimit) reserve() bool {
	if l.max == 0 {
		return true
	}
	// Not Add, undone if it was too much: the excess, while it lasts, could make another caller
	// be refused although there is capacity.
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
