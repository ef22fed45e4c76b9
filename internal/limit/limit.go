// Package limit counts what is held at once, up to a bound.
package limit

import "sync/atomic"

// Limit is a bound and the count. The zero value has no bound. It is safe for use from any
// goroutine.
type Limit struct {
	Max  int64 // 0: no bound, and no count; set before use
	held atomic.Int64
}

// Reserve counts one more, unless Max are held.
func (l *Limit) Reserve() bool {
	if l.Max == 0 {
		return true
	}
	// Not Add, undone if it was too much: the excess, while it lasts, could make another caller
	// be refused although there is capacity.
	for {
		n := l.held.Load()
		if n >= l.Max {
			return false
		}
		if l.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release counts n fewer.
func (l *Limit) Release(n int) {
	if l.Max != 0 {
		l.held.Add(-int64(n))
	}
}

// Held returns the count.
func (l *Limit) Held() int64 { return l.held.Load() }
