package console

import (
	"context"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// due counts the waiting timers by due time, within the next minute, hour and day.
type due struct {
	From time.Time `json:"from"` // by the engine's clock
	// Minute has counts for spans of 2 s, Hour for minutes and Day for hours. All begin at From.
	Minute []int `json:"minute"`
	Hour   []int `json:"hour"`
	Day    []int `json:"day"`
	// Through is the time up to which the engine has counted; timers due later are not counted.
	// Zero: all timers were counted.
	Through time.Time `json:"through,omitzero"`
	Error   string    `json:"error,omitempty"` // why the last count failed
}

const (
	dueEvery = 2 * time.Second
	dueFor   = 10 * time.Second // timeout of one count
)

// dueEdges returns the edges of the counted spans: 30 of 2 s, 59 of a minute and 23 of an hour.
func dueEdges(from time.Time) (edges []time.Time) {
	add := func(first, last int, span time.Duration) {
		for i := first; i <= last; i++ {
			edges = append(edges, from.Add(time.Duration(i)*span))
		}
	}
	add(0, 30, 2*time.Second)
	add(2, 60, time.Minute)
	add(2, 24, time.Hour)
	return edges
}

// dueOf distributes the counts of the spans of dueEdges to Minute, Hour and Day.
func dueOf(from time.Time, c durable.DueCounts) *due {
	sum := func(counts []int) (n int) {
		for _, count := range counts {
			n += count
		}
		return n
	}
	d := due{From: from, Minute: c.Counts[:30], Through: c.Through}
	d.Hour = append([]int{sum(d.Minute)}, c.Counts[30:30+59]...)
	d.Day = append([]int{sum(d.Hour)}, c.Counts[30+59:]...)
	return &d
}

// dueCounter repeatedly counts the waiting timers by due time, one count at a time, while the feed
// makes events. Counting takes at most 5 % of the time.
type dueCounter struct {
	timers *durable.Timers

	mu      sync.Mutex
	running bool      // guarded by mu
	again   time.Time // guarded by mu; when the next count may begin
	last    *due      // guarded by mu; never modified
}

// newest returns the last counts, or nil if there are none yet. It starts the next count if it is
// due.
func (c *dueCounter) newest(ctx context.Context, now time.Time) *due {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && !time.Now().Before(c.again) {
		c.running = true
		go c.count(ctx, now)
	}
	return c.last
}

func (c *dueCounter) count(ctx context.Context, now time.Time) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, dueFor)
	defer cancel()
	counts, err := c.timers.CountDue(ctx, dueEdges(now))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = dueOf(now, counts)
	} else {
		failed := due{}
		if c.last != nil {
			failed = *c.last
		}
		failed.Error = readable(err.Error())
		c.last = &failed
	}
	c.running, c.again = false, begun.Add(max(dueEvery, 20*time.Since(begun)))
}
