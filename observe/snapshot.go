package observe

import (
	"time"

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
	Lists bool   `json:"lists"` // whether what waits can be listed and searched
	// Problem says what of a custom source cannot be published: its function panicked, or
	// a number is none that JSON has.
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

// Snapshot reads all figures.
func (r *Registry) Snapshot() Snapshot {
	snap := Snapshot{Time: time.Now(), Sources: []Reading{}}
	for _, e := range r.all() {
		reading := Reading{Kind: e.kind, Name: e.name, Lists: e.source.walk != nil}
		reading.Figures, reading.Problem = e.figures()
		if e.wheel != nil {
			reading.Wheel = e.wheel.name
		}
		if e.source.levels != nil {
			reading.Levels = rings(e.source.levels())
		}
		snap.Sources = append(snap.Sources, reading)
	}
	return snap
}

// figures reads a source. The problem is what is wrong with a custom one.
func (e *entry) figures() (all map[string]any, problem string) {
	var s sheet
	e.source.read(&s)
	all = make(map[string]any, len(s))
	for _, f := range s {
		var v any = f.Value
		if f.Type == Histogram {
			v = durations(f.Durations)
		}
		if f.problem != "" {
			problem = f.problem
		}
		if f.Label == "" {
			all[f.Name] = v
			continue
		}
		values, ok := all[f.Name].(map[string]any)
		if !ok {
			values = map[string]any{}
			all[f.Name] = values
		}
		values[f.LabelValue] = v
	}
	return all, problem
}

func durations(h timingwheel.Histogram) Durations {
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
