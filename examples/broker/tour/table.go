package tour

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// table prints a line each second: the operations in the purgatories, and the outcomes of earlier
// ones.
type table struct {
	out  io.Writer
	d    *drive
	last point

	mu   sync.Mutex
	rows int // guarded by mu
}

// point is a reading of the counters at one time.
type point struct {
	at      time.Time
	sums    sums
	wakeups uint64
	wake    histogram.Durations
}

func newTable(out io.Writer, d *drive) *table {
	return &table{out: out, d: d, last: point{at: d.start}}
}

func (t *table) run(ctx context.Context) {
	t.mu.Lock()
	t.headLocked()
	t.mu.Unlock()
	every(ctx, time.Second, t.row)
}

// printf prints a message between the rows.
func (t *table) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, "%4.0fs > %s\n", time.Since(t.d.start).Seconds(), fmt.Sprintf(format, args...))
}

// headLocked prints the column headings. The caller holds t.mu.
func (t *table) headLocked() {
	_, _ = fmt.Fprintf(t.out, "%5s %9s %9s | %7s %9s %8s %9s | %9s %9s | %7s %9s\n",
		"", "produced", "consumed", "", "completed", "", "", "wake", "wake", "wheel", "advancer")
	_, _ = fmt.Fprintf(t.out, "%5s %9s %9s | %7s %9s %8s %9s | %9s %9s | %7s %9s\n",
		"time", "records/s", "records/s", "parked", "by data", "expired", "cancelled", "p50", "p99", "pending", "wakeups/s")
}

func (t *table) row() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows > 0 && t.rows%20 == 0 {
		t.headLocked()
	}
	t.rows++
	all := t.d.cluster.Stats()
	fetched := all.Operations[fetches]
	now := point{time.Now(), t.d.ledger.sums(), all.Wakeups, all.Wake}
	wake := difference(t.last.wake, now.wake)
	seconds := now.at.Sub(t.last.at).Seconds()
	_, _ = fmt.Fprintf(t.out, "%4.0fs %9.0f %9.0f | %7d %9d %8d %9d | %9v %9v | %7d %9.0f\n",
		now.at.Sub(t.d.start).Seconds(),
		float64(now.sums.acked-t.last.sums.acked)/seconds,
		float64(now.sums.seen-t.last.sums.seen)/seconds,
		all.Parked, all.Woken, fetched.Expired, fetched.Cancelled,
		wake.Quantile(0.5).Round(time.Microsecond), wake.Quantile(0.99).Round(time.Microsecond),
		all.Timers, float64(now.wakeups-t.last.wakeups)/seconds)
	t.last = now
}

// difference returns the difference of two readings of a histogram.
func difference(before, now histogram.Durations) histogram.Durations {
	for i, n := range before.Counts {
		now.Counts[i] -= n
	}
	now.Count -= before.Count
	now.Sum -= before.Sum
	return now
}
