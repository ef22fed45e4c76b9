package tour

import (
	"context"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
)

// stalls measures how long goroutines of this process wait for a CPU. On a machine that is busy
// with something else, every timed step of the drive takes that much longer, which can look like a
// lost wake-up.
type stalls struct {
	start time.Time

	mu   sync.Mutex
	seen []stall // guarded by mu; in order
}

// stall is a period in which a runnable goroutine did not run.
type stall struct{ from, to time.Duration } // since the start

const (
	stallProbe = 5 * time.Millisecond  // between two measurements
	minStall   = 20 * time.Millisecond // shorter stalls are not recorded
)

// measure runs until ctx ends.
func (s *stalls) measure(ctx context.Context) {
	for {
		due := time.Since(s.start) + stallProbe
		if !fault.Sleep(ctx, stallProbe) {
			return
		}
		s.record(due, time.Since(s.start))
	}
}

func (s *stalls) record(due, now time.Duration) {
	if now-due < minStall {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, stall{due, now})
}

// worst returns the longest stall that overlaps the time between from and to.
func (s *stalls) worst(from, to time.Duration) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.seen) - 1; i >= 0 && s.seen[i].to >= from; i-- {
		if s.seen[i].from <= to {
			longest = max(longest, s.seen[i].to-s.seen[i].from)
		}
	}
	return longest
}
