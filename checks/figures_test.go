package checks

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is a cell of BENCHMARKS.md: a median, with the smallest and the largest repetition.
type measured struct{ median, least, most float64 }

type benchmarkKey struct{ workload, size, impl, metric string }

var benchmarkCell = regexp.MustCompile(`^([\d.,e+-]+)(?: \(([\d.,e+-]+)–([\d.,e+-]+)\))?$`)

// benchmarks parses the tables of the workloads in BENCHMARKS.md.
func benchmarks(t *testing.T) map[benchmarkKey]measured {
	t.Helper()
	all, workload, metrics := map[benchmarkKey]measured{}, "", []string(nil)
	for line := range strings.Lines(readFile(t, "BENCHMARKS.md")) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			workload, _, _ = strings.Cut(heading, " ")
			metrics = nil
		}
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if cells[0] == "size" {
			metrics = cells[2:]
			continue
		}
		for i, name := range metrics {
			m := benchmarkCell.FindStringSubmatch(cells[min(i+2, len(cells)-1)])
			if m == nil {
				continue
			}
			cell := measured{median: number(t, m[1])}
			cell.least, cell.most = cell.median, cell.median
			if m[2] != "" {
				cell.least, cell.most = number(t, m[2]), number(t, m[3])
			}
			all[benchmarkKey{workload, cells[0], cells[1], name}] = cell
		}
	}
	require.Greater(t, len(all), 300)
	return all
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
	require.NoError(t, err)
	return x
}

// rounded reports whether the text is x, rounded to the text's digits.
func rounded(t *testing.T, text string, x float64) bool {
	t.Helper()
	_, decimals, _ := strings.Cut(text, ".")
	unit := math.Pow(10, -float64(len(decimals)))
	return math.Abs(number(t, text)-x) <= unit/2+x*1e-9
}

// The table of README.md has the medians of BENCHMARKS.md, rounded, and the best of each row is
// bold.
func TestFiguresOfTheTable(t *testing.T) {
	all := benchmarks(t)
	impls := []string{"timingwheel", "stdlib", "hashedwheel", "heap", "go-zero"}
	readme := readFile(t, "README.md")
	for _, row := range []struct {
		label, workload, size, metric string
		scale                         float64
	}{
		{"start and stop a timer, none pending", "W1", "goroutines=1 pending=0", "ns_per_op", 1},
		{"the same, 1M pending", "W1", "goroutines=1 pending=1M", "ns_per_op", 1},
		{"the same, 100M pending", "W7", "goroutines=1 pending=100M", "ns_per_op", 1},
		{"two goroutines, 1M pending", "W1", "goroutines=2 pending=1M", "ns_per_op", 1},
		{"start one of 1M", "W2", "timers=1M", "start_ns", 1},
		{"stop one of 1M, in random order", "W2", "timers=1M", "stop_ns", 1},
		{"memory of a timer, handle included", "W2", "timers=1M", "bytes_per_timer", 1},
		{"a full collection with 1M held", "W2", "timers=1M", "gc_ms", 1},
		{"CPU to fire a timer, 250,000 a second", "W3", "timers=500k", "cpu_ns_per_timer", 1},
		{"99 % fire within", "W3", "timers=500k", "late_p99_ms", 1},
		{"longest wait to schedule or stop, 1M due at once", "W4", "timers=1M", "sched_max_us", 1e-3},
		{"wake-ups in 5 s of silence", "W5", "timers=1", "wakeups", 1},
		{"CPU at 100k connections that push deadlines out", "W6", "connections=100k", "cpu_pct", 1},
	} {
		line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row.label) + ` \| (.*) \|$`).FindStringSubmatch(readme)
		require.NotNil(t, line, row.label)
		cells := strings.Split(line[1], " | ")
		require.Len(t, cells, len(impls), row.label)
		best, bold := math.Inf(1), math.Inf(1)
		for i, cell := range cells {
			m, ok := all[benchmarkKey{row.workload, row.size, impls[i], row.metric}]
			if cell == "–" {
				require.False(t, ok, "%s: %s has been measured", row.label, impls[i])
				continue
			}
			require.True(t, ok, "%s: BENCHMARKS.md has no %s of %s at %s in %s", row.label, row.metric, impls[i], row.size, row.workload)
			text, _, _ := strings.Cut(strings.Trim(cell, "*"), " ")
			if !rounded(t, text, m.median*row.scale) {
				t.Errorf("README.md, %s, %s: %s, must be %v", row.label, impls[i], cell, m.median*row.scale)
			}
			best = min(best, m.median)
			if strings.HasPrefix(cell, "**") {
				bold = m.median
			}
		}
		require.InDelta(t, best, bold, 0, "%s: the best is bold", row.label)
	}
}

// The other numbers from BENCHMARKS.md in the pages and the package documentation are right, too.
func TestFiguresInTheText(t *testing.T) {
	all := benchmarks(t)
	at := func(workload, size, impl, metric string) measured {
		m, ok := all[benchmarkKey{workload, size, impl, metric}]
		require.True(t, ok, "%s %s %s %s", workload, size, impl, metric)
		return m
	}
	wakeups := func(impl string) measured { return at("W5", "timers=1", impl, "wakeups") }
	least, most := math.Inf(1), 0.0
	for _, impl := range []string{"timingwheel", "stdlib", "heap"} {
		least, most = min(least, wakeups(impl).least), max(most, wakeups(impl).most)
	}
	idle := wakeups("(control)")
	stall := func(impl, metric string) measured { return at("W4", "timers=1M", impl, metric) }
	longest, nettys := stall("timingwheel", "sched_max_us"), stall("hashedwheel", "sched_max_us")
	load := at("W9", "p50_ms=20 p75_ms=60", "purgatory", "most_held")
	rate := at("W9", "p50_ms=20 p75_ms=60", "purgatory", "max_rate")
	start, fire := at("W2", "timers=1M", "timingwheel", "start_ns"), at("W3", "timers=500k", "timingwheel", "cpu_ns_per_timer")
	for _, engine := range []string{"durable-redis", "durable-pebble"} { // durable/doc.go: a twentieth or less
		durable := 1e9 / at("W13", "timers=100k", engine, "lifecycles_per_s").median
		require.LessOrEqual(t, (start.median+fire.median)*20, durable, engine)
	}
	const contexts = "482 ns and 7 allocations"
	require.Contains(t, readFile(t, "README.md"), contexts)
	require.Contains(t, readFile(t, "docs/decisions.md"), contexts)
	const sleeps = "1.08 ms" // a goroutine that only sleeps
	require.Contains(t, readFile(t, "README.md"), sleeps)
	require.Contains(t, readFile(t, "docs/decisions.md"), sleeps)
	poll := func(impl string) float64 { return at("W15", "parked=10k", impl, "bytes_per_poll").median }
	for _, c := range []struct {
		file, text string // each # is a number
		want       []float64
	}{
		{"README.md", "8-byte value takes # bytes, handle included", []float64{at("W2", "timers=1M", "timingwheel", "bytes_per_timer").median}},
		{"README.md", "which vary: # to # for each of limbo", []float64{least, most}},
		{"README.md", "# to # for a process without a timer", []float64{idle.least, idle.most}},
		{
			"README.md", "the slowest call: # to # ms in five runs, and # to # ms with",
			[]float64{longest.least / 1e3, longest.most / 1e3, nettys.least / 1e3, nettys.most / 1e3},
		},
		{
			"README.md", "9,999 take at most # µs, and # µs with",
			[]float64{stall("timingwheel", "sched_p9999_us").median, stall("hashedwheel", "sched_p9999_us").median},
		},
		{"README.md", "with its timeout, in # µs, and allocates", []float64{at("W8", "keys=3", "purgatory", "ns_per_op").median / 1e3}},
		{"README.md", "two goroutines complete # million a second", []float64{at("W11", "goroutines=2", "purgatory", "ops_per_s").median / 1e6}},
		{"README.md", "completed # million requests a second in the median of five runs (# to #)", []float64{load.median / 1e6, load.least / 1e6, load.most / 1e6}},
		{"README.md", "held # requests a second in each run, and # in the best one", []float64{rate.least, rate.most}},
		{"longpoll/doc.go", "a pending poll takes # KB there, and # KB over HTTP/2", []float64{poll("longpoll") / 1e3, poll("longpoll-h2") / 1e3}},
		{"longpoll/doc.go", "of which # and # KB belong to", []float64{(poll("longpoll") - poll("net/http")) / 1e3, (poll("longpoll-h2") - poll("net/http-h2")) / 1e3}},
	} {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(c.text), "#", `([\d.,]*\d)`)
		pattern = strings.ReplaceAll(pattern, " ", `(?:\s|//)+`)
		m := regexp.MustCompile(pattern).FindStringSubmatch(readFile(t, c.file))
		require.NotNil(t, m, "%s: %s", c.file, c.text)
		for i, want := range c.want {
			if !rounded(t, m[i+1], want) {
				t.Errorf("%s: %q: number %d is %s, must be %v", c.file, c.text, i+1, m[i+1], want)
			}
		}
	}
}
