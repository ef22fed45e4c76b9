package main

import (
	"fmt"
	"sync"
	"time"
)

const progress = 2 * time.Second // between two lines with the counts

// display shows the progress of the tour on standard error.
type display struct {
	t     *tour
	end   chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	start time.Time
}

func newDisplay(t *tour) *display {
	d := &display{t: t, end: make(chan struct{}), ended: make(chan struct{}), start: time.Now()}
	fmt.Fprintf(t.Stderr, "tour: %d timers and %d schedules over %v, %s, seed %d\n", t.Timers, t.Schedules, t.Span, t.Store, t.Seed)
	go d.run()
	return d
}

func (d *display) setStart(start time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start = start
}

// printf shows an event.
func (d *display) printf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.t.Stderr, "%6.1f s  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *display) run() {
	defer close(d.ended)
	ticker := time.NewTicker(progress)
	defer ticker.Stop()
	for open := true; open; {
		select {
		case <-ticker.C:
		case <-d.end:
			open = false
		}
		if d.t.history.read() == nil { // the check at the end gets the same error and reports it
			c := d.t.history.liveCounts()
			d.printf("scheduled %d, ran %d, repeated %d, cancelled %d; occurrences %d", c.scheduled, c.ran, c.repeated, c.cancelled, c.occurrences)
		}
	}
}

// close shows the final counts.
func (d *display) close() {
	close(d.end)
	<-d.ended
}
