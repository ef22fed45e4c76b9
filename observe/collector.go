package observe

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed-782fa212/limbo/histogram"
)

// Describe sends nothing, because sources may come and go. It is part of [prometheus.Collector].
func (r *Registry) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics, as limbo_<kind>_<metric>{name="..."}. It is part of
// [prometheus.Collector].
//
// It waits for [Custom] sources, which it reads at the same time. It sends no error, because an
// error would make the whole scrape fail. For the same reason it omits a metric of a custom
// source that contradicts another; see [Custom].
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	all := r.all()
	calls := startCalls(all)
	var s metricList
	p := statsCache{}
	for _, e := range all {
		if e.source.custom != nil {
			continue
		}
		s, _ = e.read(s[:0], p)
		for _, m := range s {
			ch <- e.metric(m)
		}
	}
	customs := families{}
	for i, x := range calls {
		if x == nil {
			continue
		}
		<-x.done
		s = append(s[:0], x.s...)
		for _, m := range all[i].withoutContradictions(s, customs) {
			ch <- all[i].metric(m)
		}
	}
}

// withoutContradictions returns the metrics of s that do not contradict those of other custom
// sources. The last of them counts the omitted ones.
func (e *entry) withoutContradictions(s metricList, customs families) metricList {
	last := s[len(s)-1]
	kept := s[:0]
	for _, m := range s[:len(s)-1] {
		if customs.admit(e.fullName(m.Name), e.name, m) {
			kept = append(kept, m)
		} else {
			last.Value++
		}
	}
	if customs.admit(e.fullName(last.Name), e.name, last) {
		kept = append(kept, last)
	}
	return kept
}

func (e *entry) fullName(metric string) string { return "limbo_" + e.kind + "_" + metric }

func (e *entry) metric(m Metric) prometheus.Metric {
	desc := e.desc(m)
	values := []string{e.name, m.LabelValue}
	if m.Label == "" {
		values = values[:1]
	}
	switch m.Type {
	case Counter:
		return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, m.Value, values...)
	case Histogram:
		return histogramMetric{desc, prometheus.MakeLabelPairs(desc, values), m.Durations}
	default:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, m.Value, values...)
	}
}

func (e *entry) desc(m Metric) *prometheus.Desc {
	help := m.Help
	if help != "" {
		help += "."
	}
	labels := []string{"name", m.Label}
	if m.Label == "" {
		labels = labels[:1]
	}
	return prometheus.NewDesc(e.fullName(m.Name), help, labels, nil)
}

// histogramMetric publishes a histogram as a classic and as a native one. A server that does not
// accept native histograms does not see their fields: the text format has none.
type histogramMetric struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	counts histogram.Durations
}

func (h histogramMetric) Desc() *prometheus.Desc { return h.desc }

// smallest is the exponent of the upper bound of the first class: 2^-20 s.
const smallest = -20

// bounds are the upper bounds of the classes, in seconds. The last class has none.
var bounds = func() (all [len(histogram.Durations{}.Counts) - 1]float64) {
	for i := range all {
		all[i] = math.Ldexp(1, i+smallest)
	}
	return all
}()

func (h histogramMetric) Write(m *dto.Metric) error {
	count, sum := h.counts.Count, h.counts.Sum
	m.Label = h.labels
	m.Histogram = &dto.Histogram{SampleCount: &count, SampleSum: &sum}
	var all struct { // one allocation: separate ones would be half of a scrape's
		buckets [len(bounds)]dto.Bucket
		counts  [len(bounds)]uint64
		list    [len(bounds)]*dto.Bucket
	}
	seen := uint64(0)
	for i := range bounds {
		seen += h.counts.Counts[i]
		all.counts[i], all.list[i] = seen, &all.buckets[i]
		all.buckets[i].CumulativeCount, all.buckets[i].UpperBound = &all.counts[i], &bounds[i]
	}
	m.Histogram.Bucket = all.list[:]
	h.native(m.Histogram)
	return nil
}

// native adds the buckets of a native histogram. In schema 0, bucket i holds values in (2^(i-1),
// 2^i]. Values of at most 2^-20 s, including zero, are in the zero bucket; values above the last
// bound are in the bucket after it.
func (h histogramMetric) native(to *dto.Histogram) {
	schema, threshold, zero := int32(0), math.Ldexp(1, smallest), h.counts.Counts[0]
	to.Schema, to.ZeroThreshold, to.ZeroCount = &schema, &threshold, &zero
	last, gap := int64(0), int32(smallest+1)
	for _, n := range h.counts.Counts[1:] {
		if n == 0 {
			gap++
			continue
		}
		if gap != 0 || len(to.PositiveSpan) == 0 {
			offset, length := gap, uint32(0)
			to.PositiveSpan = append(to.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: &length})
			gap = 0
		}
		*to.PositiveSpan[len(to.PositiveSpan)-1].Length++
		to.PositiveDelta = append(to.PositiveDelta, int64(n)-last)
		last = int64(n)
	}
	if len(to.PositiveSpan) == 0 { // the format requires a span in an empty native histogram
		offset, length := int32(0), uint32(0)
		to.PositiveSpan = []*dto.BucketSpan{{Offset: &offset, Length: &length}}
	}
}
