package observe

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Snapshot is the JSON form of all metrics at one time. The metrics of each source are of one
// moment, as its Stats says; the sources are read one after the other.
type Snapshot struct {
	Time    time.Time `json:"time"`
	Sources []Reading `json:"sources"`
}

// Reading is the metrics of one source.
type Reading struct {
	Kind string `json:"kind"` // wheel, purgatory, ...
	Name string `json:"name"`
	// Metrics maps each name to a number or a [Durations]; a name with a label is mapped to an
	// object with one of those for each value of the label.
	Metrics map[string]any `json:"metrics"`
	Levels  []Ring         `json:"levels,omitempty"`
	// Wheel names the source of the kind wheel for the wheel of this source; empty if it has
	// none.
	Wheel string `json:"wheel,omitempty"`
	// Main names the metric that a list shows for a custom source: its first Gauge without a
	// Label, or else its first such Counter. Empty if it has neither.
	Main  string `json:"main,omitempty"`
	Lists bool   `json:"lists"` // whether pending operations can be listed and searched
	// Problem says which data is missing or old: a metric of a custom source is invalid, its
	// function panicked or has not returned for 5 s, or a [Wheeled] panicked.
	Problem string `json:"problem,omitempty"`
}

// Durations is a histogram: Counts[i] durations were at most Bounds[i] and more than the
// previous bound. Empty classes at both ends are omitted.
type Durations struct {
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum_seconds"`
	Bounds []float64 `json:"bounds_seconds,omitempty"`
	Counts []uint64  `json:"counts,omitempty"`
}

// Ring is a level of a wheel. If the level has more than 128 buckets, adjacent ones are merged
// so that 128 remain.
type Ring struct {
	Span    float64 `json:"span_seconds"` // of one bucket
	Now     int     `json:"now"`          // index of the current bucket
	Pending int     `json:"pending"`
	Buckets []int   `json:"buckets"` // number of timers in each
}

const maxBuckets = 128

// Snapshot reads all metrics. It waits for [Custom] sources, which it reads at the same time.
func (r *Registry) Snapshot() Snapshot {
	snap, _ := r.snapshot(context.Background())
	return snap
}

// snapshot waits for custom sources until ctx is done. For a source that has not returned by
// then it uses the last metrics. It also returns how long it waited.
func (r *Registry) snapshot(ctx context.Context) (snap Snapshot, waited time.Duration) {
	snap = Snapshot{Time: time.Now(), Sources: []Reading{}}
	all := r.all()
	calls := startCalls(all)
	p := statsCache{}
	for _, e := range all {
		reading := Reading{Kind: e.kind, Name: e.name, Lists: e.source.walk != nil}
		if e.source.custom == nil {
			var s metricList
			s, reading.Problem = e.read(nil, p)
			reading.set(s)
		}
		if e.wheel != nil {
			reading.Wheel = e.wheel.name
		}
		if e.source.levels != nil {
			if problem := recovered(func() { reading.Levels = rings(e.source.levels()) }); problem != "" {
				reading.Problem = problem
			}
		}
		snap.Sources = append(snap.Sources, reading)
	}
	idle := time.Now()
	for _, x := range calls {
		if x != nil {
			select {
			case <-x.done:
			case <-ctx.Done():
			}
		}
	}
	waited = time.Since(idle)
	for i, x := range calls {
		if x != nil {
			to := &snap.Sources[i]
			s, problem := all[i].source.custom.latest(x)
			to.set(s)
			to.Main = mainOf(s)
			if problem != "" {
				to.Problem = problem
			}
		}
	}
	return snap, waited
}

// read appends the metrics of a source that is not custom. If a user's type panics, read appends
// none and returns a problem.
func (e *entry) read(to metricList, p statsCache) (s metricList, problem string) {
	s = to
	if problem = recovered(func() { e.source.read(&s, p) }); problem != "" {
		s = to
	}
	return s, problem
}

// recovered returns the panic of f as text, or an empty string.
func recovered(f func()) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			problem = cut("reading the metrics panicked: " + plain(p))
		}
	}()
	f()
	return ""
}

// mainOf returns the name of the metric that a list shows for a custom source.
func mainOf(s metricList) string {
	for _, t := range []Type{Gauge, Counter} {
		for _, m := range s {
			if m.Type == t && m.Label == "" && m.Name != invalid {
				return m.Name
			}
		}
	}
	return ""
}

// set sets the metrics, and their problem if they have one.
func (r *Reading) set(s metricList) {
	r.Metrics = make(map[string]any, len(s))
	for _, m := range s {
		var v any = m.Value
		if m.Type == Histogram {
			v = durations(m.Durations)
		}
		if m.problem != "" {
			r.Problem = m.problem
		}
		if m.Label == "" {
			r.Metrics[m.Name] = v
			continue
		}
		values, ok := r.Metrics[m.Name].(map[string]any)
		if !ok {
			values = map[string]any{}
			r.Metrics[m.Name] = values
		}
		values[m.LabelValue] = v
	}
}

func durations(h histogram.Durations) Durations {
	d := Durations{Count: h.Count, Sum: h.Sum}
	for i, n := range h.Counts {
		if n == 0 && len(d.Counts) == 0 {
			continue
		}
		d.Bounds = append(d.Bounds, h.Bound(i).Seconds())
		d.Counts = append(d.Counts, n)
	}
	last := len(d.Counts)
	for last > 0 && d.Counts[last-1] == 0 {
		last--
	}
	d.Bounds, d.Counts = d.Bounds[:last], d.Counts[:last]
	return d
}

func rings(levels []timingwheel.Level) []Ring {
	var all []Ring
	for _, l := range levels {
		each := max(len(l.Slots)/maxBuckets, 1)
		r := Ring{
			Span:    l.Span.Seconds() * float64(each),
			Now:     l.Now / each,
			Pending: l.Pending,
			Buckets: make([]int, len(l.Slots)/each),
		}
		for i, n := range l.Slots {
			r.Buckets[i/each] += n
		}
		all = append(all, r)
	}
	return all
}
