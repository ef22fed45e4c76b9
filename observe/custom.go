package observe

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Custom returns a source of another kind, with the metrics that read returns. The kind must
// match [a-zA-Z_][a-zA-Z0-9_]*. It must not be a kind of this package, or begin with one and an
// underscore: Add returns an error otherwise.
//
// The package calls read for each scrape, and each second while the page is open in a browser.
// Each call has its own goroutine. Calls do not overlap: a reader that arrives during a call
// gets the metrics of that call. read should return the same names each time. Metrics of one
// name have the same Type, Help and Label in all sources of the kind.
//
// If read blocks, other sources do not wait for it, but a scrape does: it lasts as long as the
// slowest read, so read should return in less than the server's scrape_timeout. The page shows
// the last metrics after 100 ms, and snapshot.json after 5 s; after 5 s both also report the
// problem. A read that never returns keeps its goroutine and each scrape that waits for it.
//
// An invalid metric is omitted without an effect on others, and limbo_<kind>_invalid_metrics
// counts the omitted ones. Invalid are
//
//   - a Name or a Label that does not match [a-zA-Z_][a-zA-Z0-9_]*; the labels name, le and
//     quantile, and labels that begin with two underscores;
//   - a Help or a LabelValue that is not UTF-8;
//   - a Value that is not finite, a negative Counter, and a Histogram whose Count is not the sum
//     of its Counts;
//   - a second metric of the same name, or of the same name and label value, and a metric whose
//     Type, Help or Label differs from that of another one with its name;
//   - x_count, x_sum or x_bucket in addition to a Histogram x.
//
// If read panics, the source has no metrics, and counts one as invalid.
func Custom(kind string, read func() []Metric) Source {
	must(read != nil, "Custom", "a nil function")
	return Source{
		kind:   kind,
		custom: new(custom),
		read:   func(s *metricList, _ statsCache) { s.custom(read) },
	}
}

// custom runs a custom source's function, which may block. Each call has its own goroutine,
// calls do not overlap, and all readers that arrive during a call share its result.
type custom struct {
	mu      sync.Mutex
	running *call      // guarded by mu; the running call, or nil
	last    metricList // guarded by mu; immutable result of the last completed call, or nil
}

type call struct {
	begun time.Time
	done  chan struct{}
	s     metricList // set when done is closed, then immutable
}

// start returns the running call, or starts one.
func (c *custom) start(read func(*metricList, statsCache)) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = &call{begun: time.Now(), done: make(chan struct{})}
		go c.run(c.running, read)
	}
	return c.running
}

func (c *custom) run(x *call, read func(*metricList, statsCache)) {
	var s metricList
	defer func() {
		if len(s) == 0 { // read called runtime.Goexit, as tests do
			s.invalid(1, errors.New("reading the metrics ended its goroutine"))
		}
		x.s = s
		c.mu.Lock()
		c.running, c.last = nil, s
		c.mu.Unlock()
		close(x.done)
	}()
	read(&s, nil)
}

// stuckAfter is how long a call may run before it is reported as a problem.
const stuckAfter = 5 * time.Second

// latest returns the metrics of a call, or of the previous call while this one still runs.
func (c *custom) latest(x *call) (s metricList, problem string) {
	select {
	case <-x.done:
		return x.s, ""
	default:
	}
	if time.Since(x.begun) >= stuckAfter {
		problem = "its function has not returned since " + x.begun.UTC().Format(time.TimeOnly) + " UTC: these are its last metrics, if it has any"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, problem
}

// startCalls starts a call of each custom source in a list. The result is nil for the other
// sources.
func startCalls(all []*entry) []*call {
	calls := make([]*call, len(all))
	for i, e := range all {
		if e.source.custom != nil {
			calls[i] = e.source.custom.start(e.source.read)
		}
	}
	return calls
}

// identifier matches names that are valid in every version of Prometheus.
var identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// kinds are the kinds of this package.
var kinds = []string{"wheel", "purgatory", "scheduler", "calls", "polls", "queue"}

// checkKind returns an error for a kind that a custom source must not use. These rules keep its
// metrics apart from those of this package, but not from those of other custom sources: kind a
// with metric b_c and kind a_b with metric c have the same name.
func checkKind(kind string) error {
	if !identifier.MatchString(kind) {
		return fmt.Errorf("observe: the kind is %q, must be of the form %s", kind, identifier)
	}
	for _, k := range kinds {
		if kind == k || strings.HasPrefix(kind, k+"_") {
			return fmt.Errorf("observe: the kind is %q, must not be %q or begin with it and an underscore: that is this package's own", kind, k)
		}
	}
	return nil
}

// invalid is the name of the last metric of a custom source.
const invalid = "invalid_metrics"

// custom adds the valid metrics of read, and the number of invalid ones.
func (s *metricList) custom(read func() []Metric) {
	metrics, problem := protect(read)
	omitted := 0
	if problem != nil {
		omitted++
	}
	all := families{}
	for _, m := range metrics {
		err := m.check()
		if err == nil && (m.Name == invalid || !all.admit(m.Name, "", m)) {
			err = errors.New("another metric has its name")
		}
		if err != nil {
			omitted++
			problem = fmt.Errorf("the metric %q was omitted: %w", m.Name, err)
			continue
		}
		*s = append(*s, m)
	}
	s.invalid(omitted, problem)
}

func (s *metricList) invalid(omitted int, problem error) {
	s.gauge(invalid, "Metrics of a custom source that were omitted because they cannot be published", float64(omitted))
	if problem != nil {
		(*s)[len(*s)-1].problem = cut(problem.Error())
	}
}

// protect calls read and returns its metrics, or an error if read panics.
func protect(read func() []Metric) (metrics []Metric, err error) {
	defer func() {
		if p := recover(); p != nil {
			metrics, err = nil, fmt.Errorf("reading the metrics panicked: %s", plain(p))
		}
	}()
	return read(), nil
}

// check returns an error if a metric is invalid regardless of other metrics.
func (m *Metric) check() error {
	switch {
	case !identifier.MatchString(m.Name):
		return errors.New("its name is not an identifier")
	case !utf8.ValidString(m.Help):
		return errors.New("its help is not UTF-8")
	case m.Type > Histogram:
		return errors.New("there is no such type")
	case m.Type != Histogram && (math.IsNaN(m.Value) || math.IsInf(m.Value, 0)):
		return errors.New("it is not finite")
	case m.Type == Counter && m.Value < 0:
		return errors.New("it counts to below zero")
	case m.Type == Histogram && !m.countsAddUp():
		return errors.New("its count is not the sum of its classes")
	case m.Label == "":
		return nil
	case !identifier.MatchString(m.Label) || strings.HasPrefix(m.Label, "__"):
		return errors.New("its label is not an identifier")
	case m.Label == "name" || m.Label == "le" || m.Label == "quantile":
		return errors.New("its label has a meaning already")
	case !utf8.ValidString(m.LabelValue):
		return errors.New("its label's value is not UTF-8")
	}
	return nil
}

func (m *Metric) countsAddUp() bool {
	var sum uint64
	for _, n := range m.Durations.Counts {
		sum += n
	}
	return sum == m.Durations.Count
}

// families holds the published metrics by name. If two metrics contradict each other, the first
// is published, because Prometheus would reject a scrape with both.
type families map[string]*family

type family struct {
	kind   Type
	help   string
	label  string
	series map[[2]string]bool // source name and label value
}

// admit reports whether a metric, whose full name is given, can be published in addition to
// those admitted before.
func (all families) admit(fullName, source string, m Metric) bool {
	fam := all[fullName]
	if fam == nil {
		if all.collides(fullName, m.Type) {
			return false
		}
		fam = &family{kind: m.Type, help: m.Help, label: m.Label, series: map[[2]string]bool{}}
		all[fullName] = fam
	}
	series := [2]string{source, m.LabelValue}
	if m.Label == "" {
		series[1] = ""
	}
	if fam.kind != m.Type || fam.help != m.Help || fam.label != m.Label || fam.series[series] {
		return false
	}
	fam.series[series] = true
	return true
}

// collides reports whether a name is that of a part of a published histogram, or whether a new
// histogram's parts have the names of published metrics.
func (all families) collides(fullName string, t Type) bool {
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		if base, ok := strings.CutSuffix(fullName, suffix); ok && all[base] != nil && all[base].kind == Histogram {
			return true
		}
		if t == Histogram && all[fullName+suffix] != nil {
			return true
		}
	}
	return false
}
