package observe

import (
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// Figure is a number, or a histogram of durations, with what it takes to publish it.
type Figure struct {
	// Name is by Prometheus's conventions, without what comes before it there, "limbo_" and
	// the kind of the source: operations, ended_total, waited_seconds.
	Name string
	Help string // a sentence without a full stop
	Type Type

	// Label tells several figures of one name apart: outcome="expired". Empty: there is one.
	Label, LabelValue string

	Value     float64             // of a Gauge or a Counter
	Durations histogram.Durations // of a Histogram

	problem string // why figures were left out, in words, for the page
}

// Type is what kind of figure one is.
type Type uint8

// The types of figures. The zero Type is Gauge.
const (
	Gauge     Type = iota // goes up and down
	Counter               // goes up
	Histogram             // of durations, in seconds
)

// sheet is where a source writes its figures.
type sheet []Figure

func (s *sheet) gauge(name, help string, v float64) {
	*s = append(*s, Figure{Name: name, Help: help, Value: v})
}

func (s *sheet) counter(name, help string, v uint64) {
	*s = append(*s, Figure{Name: name, Help: help, Type: Counter, Value: float64(v)})
}

// labelled adds counters of one name.
func (s *sheet) labelled(name, help, label string, values ...labelled) {
	for _, v := range values {
		*s = append(*s, Figure{Name: name, Help: help, Type: Counter, Label: label, LabelValue: v.value, Value: float64(v.n)})
	}
}

type labelled struct {
	value string
	n     uint64
}

func (s *sheet) durations(name, help string, h histogram.Durations) {
	*s = append(*s, Figure{Name: name, Help: help, Type: Histogram, Durations: h})
}

func (s *sheet) seconds(name, help string, d time.Duration) { s.gauge(name, help, d.Seconds()) }
