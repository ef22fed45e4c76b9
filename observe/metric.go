package observe

import (
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// Metric is a metric: a number or a histogram of durations, with its metadata.
type Metric struct {
	// Name follows Prometheus's conventions, without the prefix of "limbo_" and the source's
	// kind: operations, ended_total, waited_seconds.
	Name string
	Help string // a sentence without a full stop
	Type Type

	// Label distinguishes several metrics of one name: outcome="expired". It is empty if there
	// is only one.
	Label, LabelValue string

	Value     float64             // of a Gauge or a Counter
	Durations histogram.Durations // of a Histogram

	problem string // why metrics were omitted, for the page
}

// Type is the type of a metric.
type Type uint8

// The types of metrics. The zero Type is Gauge.
const (
	Gauge     Type = iota // goes up and down
	Counter               // goes up
	Histogram             // of durations, in seconds
)

// metricList collects the metrics of a source.
type metricList []Metric

func (s *metricList) gauge(name, help string, v float64) {
	*s = append(*s, Metric{Name: name, Help: help, Value: v})
}

func (s *metricList) counter(name, help string, v uint64) {
	*s = append(*s, Metric{Name: name, Help: help, Type: Counter, Value: float64(v)})
}

// labelled adds counters of one name.
func (s *metricList) labelled(name, help, label string, values ...labelled) {
	for _, v := range values {
		*s = append(*s, Metric{Name: name, Help: help, Type: Counter, Label: label, LabelValue: v.value, Value: float64(v.n)})
	}
}

type labelled struct {
	value string
	n     uint64
}

func (s *metricList) durations(name, help string, h histogram.Durations) {
	*s = append(*s, Metric{Name: name, Help: help, Type: Histogram, Durations: h})
}

func (s *metricList) seconds(name, help string, d time.Duration) { s.gauge(name, help, d.Seconds()) }
