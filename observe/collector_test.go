package observe

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/stretchr/testify/require"
)

// scrape returns the response of promhttp's handler to a scrape.
func scrape(t testing.TB, all ...prometheus.Collector) string {
	t.Helper()
	registered := prometheus.NewRegistry()
	registered.MustRegister(all...)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registered, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	return w.Body.String()
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(newEveryKind(t).registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// everyClass returns a histogram with i+1 durations in class i.
func everyClass() (h histogram.Durations) {
	for i := range h.Counts {
		for range i + 1 {
			h.Add(h.Bound(min(i, len(h.Counts)-2)) + time.Duration(i/(len(h.Counts)-1)))
		}
	}
	return h
}

func TestClassicHistogram(t *testing.T) {
	for name, h := range map[string]histogram.Durations{"empty": {}, "one": one(time.Second), "all": everyClass()} {
		m := written(t, h)
		require.Equal(t, h.Count, m.GetSampleCount(), name)
		require.InDelta(t, h.Sum, m.GetSampleSum(), 0, name)
		require.Len(t, m.Bucket, len(h.Counts)-1, name)
		seen := uint64(0)
		for i, b := range m.Bucket {
			seen += h.Counts[i]
			require.Equal(t, seen, b.GetCumulativeCount(), "%s %d", name, i)
			require.Equal(t, h.Bound(i), time.Duration(b.GetUpperBound()*1e9), "%s %d", name, i)
		}
		require.Equal(t, h.Count, seen+h.Counts[len(h.Counts)-1])
	}
	require.EqualValues(t, 31*32/2, everyClass().Count)
}

// The native buckets, decoded according to the format, match the classes.
func TestNativeHistogram(t *testing.T) {
	gaps := everyClass()
	for _, i := range []int{1, 2, 5, 9, 10, 11, 29} {
		gaps.Count -= gaps.Counts[i]
		gaps.Counts[i] = 0
	}
	for name, h := range map[string]histogram.Durations{
		"empty": {}, "zero": one(0), "first": one(time.Microsecond), "one": one(time.Second),
		"longest": one(math.MaxInt64), "all": everyClass(), "gaps": gaps,
	} {
		m := written(t, h)
		require.EqualValues(t, 0, m.GetSchema())
		require.Equal(t, h.Bound(0), time.Duration(m.GetZeroThreshold()*1e9))
		require.Equal(t, h.Counts[0], m.GetZeroCount(), name)
		require.NotEmpty(t, m.PositiveSpan, "or an empty one is not seen as native")
		var got [31]uint64
		got[0] = m.GetZeroCount()
		index, deltas, count := 0, m.PositiveDelta, int64(0)
		for _, span := range m.PositiveSpan {
			index += int(span.GetOffset())
			for range span.GetLength() {
				count += deltas[0]
				deltas = deltas[1:]
				got[index+20] = uint64(count) // bucket i is up to 2^i, class i up to 2^(i-20)
				index++
			}
		}
		require.Empty(t, deltas)
		require.Equal(t, h.Counts, got, name)
	}
}

func one(d time.Duration) (h histogram.Durations) {
	h.Add(d)
	return h
}

func written(t *testing.T, h histogram.Durations) *dto.Histogram {
	var m dto.Metric
	e := &entry{kind: "x", name: "y"}
	require.NoError(t, e.metric(Metric{Name: "z_seconds", Type: Histogram, Durations: h}).Write(&m))
	return m.Histogram
}

// An invalid metric of a custom source does not affect other metrics.
func TestInvalidMetrics(t *testing.T) {
	good := Metric{Name: "good", Help: "Fine", Value: 1}
	labelled := Metric{Name: "by_disk", Help: "Fine", Label: "disk", LabelValue: "a"}
	durations := Metric{Name: "took_seconds", Help: "Fine", Type: Histogram, Durations: one(time.Second)}
	change := func(f Metric, change func(*Metric)) Metric { change(&f); return f }
	for name, bad := range map[string]Metric{
		"no name":             {},
		"name":                {Name: "a-b"},
		"colon":               {Name: "a:b"},
		"name that is taken":  {Name: "invalid_metrics"},
		"help":                {Name: "x", Help: "\xff"},
		"type":                {Name: "x", Type: 3},
		"NaN":                 {Name: "x", Value: math.NaN()},
		"infinite":            {Name: "x", Value: math.Inf(1)},
		"counter":             {Name: "x_total", Type: Counter, Value: -1},
		"histogram":           {Name: "x", Type: Histogram, Durations: histogram.Durations{Count: 1}},
		"label":               {Name: "x", Label: "a b"},
		"label's underscores": {Name: "x", Label: "__a"},
		"label name":          {Name: "x", Label: "name"},
		"label le":            {Name: "x", Label: "le"},
		"label's value":       {Name: "x", Label: "a", LabelValue: "\xff"},
		"the same":            good,
		"the same, labelled":  labelled,
		"another type":        change(good, func(f *Metric) { f.Type = Counter }),
		"another help":        change(good, func(f *Metric) { f.Help = "Not fine" }),
		"a label":             change(good, func(f *Metric) { f.Label = "disk" }),
		"another label":       change(labelled, func(f *Metric) { f.Label = "tape" }),
		"a part's name":       {Name: "took_seconds_count"},
		"sum":                 {Name: "took_seconds_sum"},
		"bucket":              {Name: "took_seconds_bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			r := New()
			_, err := r.Add("x", Custom("disk", func() []Metric { return []Metric{good, labelled, durations, bad} }))
			require.NoError(t, err)
			text := scrape(t, r)
			require.Contains(t, text, "\nlimbo_disk_good{name=\"x\"} 1\n")
			require.Contains(t, text, "\nlimbo_disk_by_disk{disk=\"a\",name=\"x\"} 0\n")
			require.Contains(t, text, "\nlimbo_disk_took_seconds_count{name=\"x\"} 1\n")
			require.Contains(t, text, "\nlimbo_disk_invalid_metrics{name=\"x\"} 1\n")
			require.Equal(t, 4, strings.Count(text, "# TYPE"))
			var s metricList // as on the page
			r.all()[0].source.read(&s, nil)
			require.Equal(t, metricList{good, labelled, durations}, s[:len(s)-1])
		})
	}
	r := New()
	_, err := r.Add("x", Custom("disk", func() []Metric { panic("no") }))
	require.NoError(t, err)
	require.Contains(t, scrape(t, r), "\nlimbo_disk_invalid_metrics{name=\"x\"} 1\n")
	_, err = r.Add("y", Custom("tape", func() []Metric {
		return []Metric{{Name: "took_seconds_sum"}, durations, good, {Name: "bare"}}
	}))
	require.NoError(t, err)
	text := scrape(t, r)
	require.Contains(t, text, "\nlimbo_tape_invalid_metrics{name=\"y\"} 1\n", "a histogram, after what has its part's name")
	require.Contains(t, text, "# HELP limbo_tape_good Fine.\n")
	require.Contains(t, text, "# HELP limbo_tape_bare \n")
}

// If two custom sources contradict each other, the first one is published.
func TestContradictions(t *testing.T) {
	r := New()
	for name, kind := range map[string]string{"a": "disk", "b": "disk"} {
		_, err := r.Add(name, Custom(kind, func() []Metric {
			return []Metric{{Name: "x", Help: "As of " + name}, {Name: "cache_hits", Help: "Hits"}}
		}))
		require.NoError(t, err)
	}
	_, err := r.Add("a", Custom("disk_cache", func() []Metric { return []Metric{{Name: "hits", Help: "Hits", Value: 2}} }))
	require.NoError(t, err)
	text := scrape(t, r)
	require.Equal(t, 1, strings.Count(text, "\nlimbo_disk_x{"), text)
	require.Contains(t, text, "\nlimbo_disk_cache_hits{name=\"a\"} 0\n")
	require.Contains(t, text, "\nlimbo_disk_cache_invalid_metrics{name=\"a\"} 1\n")
	require.Equal(t, 2, strings.Count(text, "\nlimbo_disk_invalid_metrics{"))
	require.Equal(t, 1, strings.Count(text, "limbo_disk_invalid_metrics{name=\"a\"} 1")+strings.Count(text, "limbo_disk_invalid_metrics{name=\"b\"} 1"))
}

// Two registries behave as Registry documents.
func TestTwoRegistries(t *testing.T) {
	registered := prometheus.NewRegistry()
	var two [2]*Registry
	for i := range two {
		two[i] = New()
		_, err := two[i].Add("x", nothing("disk"))
		require.NoError(t, err)
	}
	require.NoError(t, registered.Register(two[0]))
	require.NoError(t, registered.Register(two[1]), "what is collected is not known before")
	_, err := registered.Gather()
	require.ErrorContains(t, err, "was collected before with the same name and label values")

	apart := prometheus.NewRegistry()
	apart.MustRegister(two[0])
	prometheus.WrapRegistererWith(prometheus.Labels{"tenant": "b"}, apart).MustRegister(two[1])
	require.Len(t, gathered(t, apart)["limbo_disk_invalid_metrics"].Metric, 2)
}

func gathered(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}
