package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	frame    = 250 * time.Millisecond // between two tables on a terminal
	progress = 2 * time.Second        // between two lines elsewhere
	maxLines = 6                      // events below the table
)

// display shows the progress of the tour on standard error: on a terminal a table that it redraws,
// elsewhere lines.
type display struct {
	t        *tour
	out      io.Writer
	terminal bool
	end      chan struct{}
	ended    chan struct{}

	mu    sync.Mutex
	start time.Time
	lines []string
	drawn int // lines of the table on the screen
}

func newDisplay(t *tour) *display {
	d := &display{t: t, out: t.Stderr, end: make(chan struct{}), ended: make(chan struct{}), start: time.Now()}
	if f, ok := t.Stderr.(*os.File); ok {
		info, err := f.Stat()
		d.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	fmt.Fprintf(d.out, "timerd -tour: %d timers and %d schedules over %v, %s, seed %d\n", t.Timers, t.Schedules, t.Span, t.Store, t.Seed)
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
	line := fmt.Sprintf("%6.1f s  %s", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
	if d.terminal {
		d.lines = append(d.lines, line)
		return
	}
	fmt.Fprintln(d.out, line)
}

func (d *display) run() {
	defer close(d.ended)
	interval := progress
	if d.terminal {
		interval = frame
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.show()
		case <-d.end:
			d.show()
			return
		}
	}
}

func (d *display) show() {
	if err := d.t.history.read(); err != nil {
		return // the check at the end gets the same error and reports it
	}
	c := d.t.history.liveCounts()
	if !d.terminal {
		d.printf("scheduled %d, ran %d, repeated %d, cancelled %d; occurrences %d", c.scheduled, c.ran, c.repeated, c.cancelled, c.occurrences)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1f s  scheduled %6d   ran %6d   repeated %4d   cancelled %5d   occurrences %6d   %s\n\n", time.Since(d.startTime()).Seconds(),
		c.scheduled, c.ran, c.repeated, c.cancelled, c.occurrences, bar(c.ran, d.t.Timers))
	for _, p := range d.t.fleet.all {
		fmt.Fprintf(&b, "  %-12s %s\n", p.name, p.state())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.WriteString("\n")
	for _, line := range d.lines[max(0, len(d.lines)-maxLines):] {
		b.WriteString(line + "\n")
	}
	if d.drawn > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", d.drawn) // move up and clear the rest
	}
	d.drawn = strings.Count(b.String(), "\n")
	fmt.Fprint(d.out, b.String())
}

func (d *display) startTime() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.start
}

func bar(done, total int) string {
	const width = 30
	n := min(width*done/max(total, 1), width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// close shows the final state.
func (d *display) close() {
	close(d.end)
	<-d.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.terminal && len(d.lines) > 0 {
		fmt.Fprintln(d.out)
	}
}

// print writes the summary as text.
func (s Summary) print(w io.Writer) {
	for _, line := range []struct {
		name       string
		value      any
		mustBeZero bool
	}{
		{"timers", s.Timers, false},
		{"ran", s.Ran, false},
		{"repeated", s.Repeated, false},
		{"cancelled", s.Cancelled, false},
		{"dead", s.Dead, false},
		{"late, p50", fmt.Sprintf("%.1f ms", s.LateMS.P50), false},
		{"late, p99", fmt.Sprintf("%.1f ms, kills and pauses included", s.LateMS.P99), false},
		{"workers killed", s.WorkersKilled, false},
		{"engine killed", s.EngineKilled, false},
		{"connections cut", s.Cut, false},
		{"came late", s.CameLate, false},
		{"came twice", s.CameTwice, false},
		{"early", s.Early, true},
		{"lost", s.Lost, true},
		{"ran after cancel", s.RanAfterCancel, true},
		{"acknowledged twice", s.AcknowledgedTwice, true},
		{"left behind", s.LeftBehind, true},
		{"schedules", s.Schedules.Schedules, false},
		{"  replaced", s.Schedules.Replaced, false},
		{"  deleted", s.Schedules.Deleted, false},
		{"  planned times", s.Schedules.Planned, false},
		{"  created", s.Schedules.Created, false},
		{"  skipped", s.Schedules.Skipped, false},
		{"  done", s.Schedules.Done, false},
		{"  early", s.Schedules.Early, true},
		{"  doubled", s.Schedules.Doubled, true},
		{"  lost", s.Schedules.Lost, true},
		{"  after delete", s.Schedules.AfterDelete, true},
	} {
		mark := ""
		if line.mustBeZero {
			mark = "  ok"
			if line.value != 0 {
				mark = "  WRONG: must be 0"
			}
		}
		fmt.Fprintf(w, "%-20s %v%s\n", line.name, line.value, mark)
	}
}
