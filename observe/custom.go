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

// Custom returns a source of any other kind, with the figures that read returns. The kind
// is [a-zA-Z_][a-zA-Z0-9_]*, and neither a kind of this package nor one with an underscore
// and more behind it: Add returns an error otherwise.
//
// read is called for each scrape, and each second while somebody has the page open, on a
// goroutine of its own, by one at a time: who asks meanwhile gets the figures of the call
// that runs. It should return the same names each time. Figures of one name, of all sources
// of the kind, have the same Type, Help and Label.
//
// If read blocks, other sources do not wait for it, but a scrape does: it lasts as long as
// the slowest read, so have it return in less than the server's scrape_timeout. The page
// shows the last figures after 100 ms, and snapshot.json after 5 s, and from then on both
// say so. A read that never returns keeps its goroutine, and each scrape that waits for it.
//
// A figure that cannot be published is left out, and nothing else suffers from it:
// limbo_<kind>_invalid_figures says how many there are. Invalid are
//
//   - a Name or a Label that is not [a-zA-Z_][a-zA-Z0-9_]*; the labels name, le and
//     quantile, and those that begin with two underscores;
//   - a Help or a LabelValue that is not UTF-8;
//   - a Value that is not finite, a Counter's below zero, and a Histogram whose Count is
//     not the sum of its Counts;
//   - the second figure of a name, or of a name and a label's value, and one whose Type,
//     Help or Label differs from another's;
//   - x_count, x_sum or x_bucket beside a Histogram x.
//
// If read panics there are no figures, and one that is invalid.
func Custom(kind string, read func() []Figure) Source {
	must(read != nil, "Custom", "a nil function")
	return Source{
		kind:   kind,
		custom: new(custom),
		read:   func(s *sheet, _ pass) { s.custom(read) },
	}
}

// custom is the calls of a custom source's function, which may block: each runs on a
// goroutine of its own, one at a time, and is for all who ask while it runs.
type custom struct {
	mu   sync.Mutex
	runs *call // guarded by mu; nil: none
	last sheet // guarded by mu; of the last that has ended, does not change. nil: none yet
}

type call struct {
	begun time.Time
	done  chan struct{}
	s     sheet // when done is closed; does not change then
}

// begin returns the call that runs, or a new one.
func (c *custom) begin(read func(*sheet, pass)) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = &call{begun: time.Now(), done: make(chan struct{})}
		go c.run(c.runs, read)
	}
	return c.runs
}

func (c *custom) run(x *call, read func(*sheet, pass)) {
	var s sheet
	defer func() {
		if len(s) == 0 { // by runtime.Goexit, as tests call it
			s.invalid(1, errors.New("reading the figures ended its goroutine"))
		}
		x.s = s
		c.mu.Lock()
		c.runs, c.last = nil, s
		c.mu.Unlock()
		close(x.done)
	}()
	read(&s, nil)
}

// silentFor is how long a call may run before that is said to be a problem.
const silentFor = 5 * time.Second

// latest returns the figures of a call, or, if it has not ended, the last that there are.
func (c *custom) latest(x *call) (s sheet, problem string) {
	select {
	case <-x.done:
		return x.s, ""
	default:
	}
	if time.Since(x.begun) >= silentFor {
		problem = "its function has not returned since " + x.begun.UTC().Format(time.TimeOnly) + " UTC: these are its last figures, if it has any"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, problem
}

// begin begins to read the custom sources of a list: nil for the others.
func begin(all []*entry) []*call {
	calls := make([]*call, len(all))
	for i, e := range all {
		if e.source.custom != nil {
			calls[i] = e.source.custom.begin(e.source.read)
		}
	}
	return calls
}

// identifier is what is a name to every version of Prometheus.
var identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// kinds are those of this package.
var kinds = []string{"wheel", "purgatory", "scheduler", "calls", "polls", "queue"}

// checkKind returns an error for a kind that no custom source may have. With these rules
// none of its figures has the name of one of this package: that of another custom source
// it may have, as the kind a and the figure b_c have that of a_b and c.
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

// invalid is the name of the last figure of a custom source.
const invalid = "invalid_figures"

// custom adds the figures of read that can be published, and how many cannot.
func (s *sheet) custom(read func() []Figure) {
	figures, problem := protect(read)
	left := 0
	if problem != nil {
		left++
	}
	all := families{}
	for _, f := range figures {
		err := f.check()
		if err == nil && (f.Name == invalid || !all.admit(f.Name, "", f)) {
			err = errors.New("another figure has its name")
		}
		if err != nil {
			left++
			problem = fmt.Errorf("the figure %q was left out: %w", f.Name, err)
			continue
		}
		*s = append(*s, f)
	}
	s.invalid(left, problem)
}

func (s *sheet) invalid(left int, problem error) {
	s.gauge(invalid, "Figures of a custom source that were left out because they cannot be published", float64(left))
	if problem != nil {
		(*s)[len(*s)-1].problem = cut(problem.Error())
	}
}

// protect returns the figures of read; none, and an error, if it panics.
func protect(read func() []Figure) (figures []Figure, err error) {
	defer func() {
		if p := recover(); p != nil {
			figures, err = nil, fmt.Errorf("reading the figures panicked: %s", plain(p))
		}
	}()
	return read(), nil
}

// check returns why a figure cannot be published, whatever others there are.
func (f *Figure) check() error {
	switch {
	case !identifier.MatchString(f.Name):
		return errors.New("its name is not an identifier")
	case !utf8.ValidString(f.Help):
		return errors.New("its help is not UTF-8")
	case f.Type > Histogram:
		return errors.New("there is no such type")
	case f.Type != Histogram && (math.IsNaN(f.Value) || math.IsInf(f.Value, 0)):
		return errors.New("it is not finite")
	case f.Type == Counter && f.Value < 0:
		return errors.New("it counts to below zero")
	case f.Type == Histogram && !f.adds():
		return errors.New("its count is not the sum of its classes")
	case f.Label == "":
		return nil
	case !identifier.MatchString(f.Label) || strings.HasPrefix(f.Label, "__"):
		return errors.New("its label is not an identifier")
	case f.Label == "name" || f.Label == "le" || f.Label == "quantile":
		return errors.New("its label has a meaning already")
	case !utf8.ValidString(f.LabelValue):
		return errors.New("its label's value is not UTF-8")
	}
	return nil
}

func (f *Figure) adds() bool {
	var sum uint64
	for _, n := range f.Durations.Counts {
		sum += n
	}
	return sum == f.Durations.Count
}

// families is what was published under each name. Of figures that contradict each other
// the first is published, because Prometheus would refuse the scrape with both.
type families map[string]*family

type family struct {
	kind  Type
	help  string
	label string
	has   map[[2]string]bool // a source's name, and a label's value
}

// admit reports whether a figure, whose whole name is given, can be published beside those
// that were admitted already.
func (all families) admit(whole, source string, f Figure) bool {
	fam := all[whole]
	if fam == nil {
		if all.collides(whole, f.Type) {
			return false
		}
		fam = &family{kind: f.Type, help: f.Help, label: f.Label, has: map[[2]string]bool{}}
		all[whole] = fam
	}
	series := [2]string{source, f.LabelValue}
	if f.Label == "" {
		series[1] = ""
	}
	if fam.kind != f.Type || fam.help != f.Help || fam.label != f.Label || fam.has[series] {
		return false
	}
	fam.has[series] = true
	return true
}

// collides reports whether a name is that of a part of a histogram, or those of the parts
// of a histogram are taken.
func (all families) collides(whole string, t Type) bool {
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		if base, ok := strings.CutSuffix(whole, suffix); ok && all[base] != nil && all[base].kind == Histogram {
			return true
		}
		if t == Histogram && all[whole+suffix] != nil {
			return true
		}
	}
	return false
}
