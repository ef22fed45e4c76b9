package metric

import (
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// Histogram counts durations. All methods are safe for concurrent use.
type Histogram struct {
	mu        sync.Mutex
	durations histogram.Durations // guarded by mu
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durations.Add(d)
}

// Durations returns the durations counted so far.
func (h *Histogram) Durations() histogram.Durations {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.durations
}
