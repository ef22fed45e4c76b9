package observe

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Snapshot is what is observed, at one time, as it is published as JSON. The figures of
// each source are of one moment, as its Stats says; the sources are read one after the
// other.
type Snapshot struct {
	Time    time.Time `json:"time"`
	Sources []Reading `json:"sources"`
}

// Reading is the figures of one source.
type Reading struct {
	Kind string `json:"kind"` // wheel, purgatory, ...
	Name string `json:"name"`
	// Figures has a number, or a [Durations], for each name; for what has a label, an
	// object that has those for each of its values.
	Figures map[string]any `json:"figures"`
	Levels  []Ring         `json:"levels,omitempty"`
	// Wheel names the source of the kind wheel that this one waits with; empty: none.
	Wheel string `json:"wheel,omitempty"`
	// Main names the figure that stands for a custom source in a list: the first of its Gauges
	// without a Label, or, if it has none, of its Counters. Empty: there is neither.
	Main  string `json:"main,omitempty"`
	Lists bool   `json:"lists"` // whether what waits can be listed and searched
	// Problem says what is missing or old. Of a custom source a figure cannot be published,
	// or its function panicked or has not returned for 5 s; or a [Wheeled] panicked.
	Problem string `json:"problem,omitempty"`
}

// Durations is a histogram: Counts[i] durations were at most Bounds[i] and more than the
// bound before. Classes before the first and after the last that has any are left out.
type Durations struct {
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum_seconds"`
	Bounds []float64 `json:"bounds_seconds,omitempty"`
	Counts []uint64  `json:"counts,omitempty"`
}

// Ring is a level of a wheel. Its buckets are those of the level, or, if there are more than
// 128, as many as fit together into one of 128.
type Ring struct {
	Span    float64 `json:"span_seconds"` // of one of Buckets
	Now     int     `json:"now"`          // the one that is the present
	Pending int     `json:"pending"`
	Buckets []int   `json:"buckets"` // timers
}

const maxBuckets = 128

// Snapshot reads all figures. It waits for [Custom] sources, which it reads at the same time.
func (r *Registry) Snapshot() Snapshot {
	snap, _ := r.snapshot(context.Background())
	return snap
}

// snapshot waits for custom sources until ctx is done: of one that has not returned by then it
// has the last figures. It returns for how long it waited, too.
func (r *Registry) snapshot(ctx context.Context) (snap Snapshot, waited time.Duration) {
	snap = Snapshot{Time: time.Now(), Sources: []Reading{}}
	all := r.all()
	calls := begin(all)
	p := pass{}
	for _, e := range all {
		reading := Reading{Kind: e.kind, Name: e.name, Lists: e.source.walk != nil}
		if e.source.custom == nil {
			var s sheet
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

// read appends the figures of a source that is not custom. If a user's type panics there are
// none, and a problem.
func (e *entry) read(to sheet, p pass) (s sheet, problem string) {
	s = to
	if problem = recovered(func() { e.source.read(&s, p) }); problem != "" {
		s = to
	}
	return s, problem
}

// recovered returns what f panicked with, in words; empty if it did not.
func recovered(f func()) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			problem = cut("reading the figures panicked: " + plain(p))
		}
	}()
	f()
	return ""
}

// mainOf returns the name of the figure that stands for a custom source.
func mainOf(s sheet) string {
	for _, t := range []Type{Gauge, Counter} {
		for _, f := range s {
			if f.Type == t && f.Label == "" && f.Name != invalid {
				return f.Name
			}
		}
	}
	return ""
}

// set sets the figures, and the problem that they have.
func (r *Reading) set(s sheet) {
	r.Figures = make(map[string]any, len(s))
	for _, f := range s {
		var v any = f.Value
		if f.Type == Histogram {
			v = durations(f.Durations)
		}
		if f.problem != "" {
			r.Problem = f.problem
		}
		if f.Label == "" {
			r.Figures[f.Name] = v
			continue
		}
		values, ok := r.Figures[f.Name].(map[string]any)
		if !ok {
			values = map[string]any{}
			r.Figures[f.Name] = values
		}
		values[f.LabelValue] = v
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
		each := max(len(l.Places)/maxBuckets, 1)
		r := Ring{
			Span:    l.Span.Seconds() * float64(each),
			Now:     l.Now / each,
			Pending: l.Pending,
			Buckets: make([]int, len(l.Places)/each),
		}
		for i, n := range l.Places {
			r.Buckets[i/each] += n
		}
		all = append(all, r)
	}
	return all
}
