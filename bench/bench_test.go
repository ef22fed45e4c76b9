package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
)

// The runner's children are this test binary, and so are servers without a program of their own.
// A quick run has no time limit here, because the machine may be busy.
func TestMain(m *testing.M) {
	makeTiny()
	if runAsChild() {
		os.Exit(0)
	}
	quickLimit = time.Hour
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // parallel tests wait for processes
		panic(err)
	}
	code := m.Run()
	removeScratch()
	os.Exit(code)
}

// makeTiny reduces the quick form to the minimum that exercises everything. The quick sizes
// themselves are for measurements.
func makeTiny() {
	for name, quick := range map[string][]Params{
		"W3": sizes("timers", 2_000), "W4": sizes("timers", 1_000), "W10": sizes("watchers", 1, 1_000), "W12": sizes("parked", 20), "W13": sizes("timers", 200), "W16": sizes("schedules", 200), "W17": sizes("timers", 1_000),
		"W14": withGoroutines(sizes("in_flight", 1_000), 1, 2), "W15": sizes("parked", 20),
	} {
		workloads[workloadIndex(name)].quick = quick
	}
	lastRate, halfRate, quickSpan, quickIdle = 2*firstRate, 2*firstRate, 20*time.Millisecond, 100*time.Millisecond
}

func TestMedianAndSpread(t *testing.T) {
	require.Equal(t, Stat{3, 1, 9}, newStat([]float64{9, 1, 3}))
	require.Equal(t, Stat{2.5, 1, 9}, newStat([]float64{9, 1, 3, 2}))
	require.Equal(t, Stat{7, 7, 7}, newStat([]float64{7}))
	require.Equal(t, Stat{-1, -2, 0}, newStat([]float64{0, -2, -1}))
}

func TestRoundSignificant(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 12: "12", 0.12345: "0.123", 1.239: "1.24", 98.76: "98.8", 123.4: "123", 9999: "9999",
		12345.6: "12,346", 1234567: "1,234,567", -1234567: "-1,234,567", 0.00042: "0.00042",
	} {
		require.Equal(t, want, number(x))
	}
	require.Equal(t, 92.13, roundSignificant(92.1312))
	require.Equal(t, 0.0012, roundSignificant(0.00120000004))
	require.Equal(t, 123457., roundSignificant(123456.7))
	require.Equal(t, 0., roundSignificant(0))
	for n, want := range map[int]string{0: "0", 1: "1", 1000: "1k", 125_000: "125k", 1_000_000: "1M", 1_234: "1234", 100_000_000: "100M"} {
		require.Equal(t, want, count(n))
	}
}

func TestRepetitionsAreJoinedAndAGapStaysAGap(t *testing.T) {
	p := Params{"pending": 1000, "goroutines": 1}
	rows := rowsOf([]Result{
		{Workload: "W1", Impl: "stdlib", Params: p, Metrics: Metrics{"ns_per_op": 5, "allocs_per_op": 1}},
		{Workload: "W1", Impl: "netty-jvm", Params: p, Metrics: Metrics{"ns_per_op": 4}},
		{Workload: "W1", Impl: "stdlib", Params: Params{"goroutines": 1, "pending": 1000}, Metrics: Metrics{"ns_per_op": 7, "allocs_per_op": 1}},
		{Workload: "W1", Impl: "stdlib", Params: p, Metrics: Metrics{"ns_per_op": 6, "allocs_per_op": 1}},
	})
	require.Len(t, rows, 2)
	require.Equal(t, 3, rows[0].Reps)
	require.Equal(t, Stat{6, 5, 7}, rows[0].Stats["ns_per_op"])
	require.Equal(t, "6 (5–7)", rows[0].cell("ns_per_op"))
	require.Equal(t, gapMark, rows[1].cell("allocs_per_op"))

	var out bytes.Buffer
	printLines(&out, rows)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, []string{
		`{"workload":"W1","impl":"stdlib","params":{"goroutines":1,"pending":1000},"metrics":{"allocs_per_op":1,"ns_per_op":6}}`,
		`{"workload":"W1","impl":"netty-jvm","params":{"goroutines":1,"pending":1000},"metrics":{"ns_per_op":4}}`,
	}, lines)

	out.Reset()
	workloadTable(workloads[0], rows).markdown(&out)
	require.Contains(t, out.String(), "| netty-jvm | 4 | – |")
}

func TestSizesARivalCannotDoAreDoneOnceSmaller(t *testing.T) {
	r := runner{workloads: workloads, rivals: []rival{stdlibRival, gozeroRival}, reps: 2}
	seen := map[string]int{}
	for _, group := range r.plan() {
		for _, s := range group {
			seen[s.job.Workload+" "+s.job.Impl+" "+s.job.Params.String()]++
		}
	}
	for key, n := range seen {
		want := 2
		if strings.Contains(key, "pending=100M") {
			want = 1 // it takes minutes
		}
		require.Equal(t, want, n, key)
	}
	require.Contains(t, seen, "W1 go-zero goroutines=1 pending=200k")
	require.Contains(t, seen, "W1 stdlib goroutines=1 pending=10M")
	require.NotContains(t, seen, "W1 go-zero goroutines=1 pending=1M")
	require.Contains(t, seen, "W7 stdlib goroutines=1 pending=100M")
}

// A workload that a timer rival does not support is a gap. A broker is not a timer rival, and
// has no gaps there.
func TestOnlyRivalsOfAKindHaveGaps(t *testing.T) {
	r := runner{workloads: workloads, rivals: rivals, reps: 1}
	for _, riv := range r.rivals {
		require.Equal(t, !slices.Contains([]string{
			"timingwheel-page", "purgatory", "purgatory-page", "threshold", "limbo-broker", "kfake", "durable-redis", "durable-pebble", "asynq", "nats",
			"calls", "calls-group", "map", "longpoll", "longpoll-h2", "longpoll-nodes", "net/http", "net/http-h2",
		}, riv.name), riv.timers(), riv.name)
	}
	r.rivals = slices.DeleteFunc(slices.Clone(r.rivals), func(riv rival) bool { return riv.unavailable != nil })
	r.plan()
	require.NotEmpty(t, r.gaps)
	for _, g := range r.gaps {
		if g.Params != nil {
			continue // a size that this machine does not allow
		}
		riv, ok := rivalNamed(g.Impl)
		require.True(t, ok)
		require.True(t, riv.timers(), "%s %s", g.Workload, g.Impl)
		require.Contains(t, timerWorkloads, g.Workload)
	}
}

func TestRepetitionsGoRoundTheRivals(t *testing.T) {
	r := runner{workloads: workloads[:1], rivals: []rival{timingwheelRival, stdlibRival}, reps: 3}
	var order []string
	for _, s := range r.plan()[0] {
		order = append(order, s.job.Impl)
	}
	round := []string{"timingwheel", "stdlib", controlName}
	require.Equal(t, append(append(append([]string{}, round...), round...), round...), order)
}

func TestMissingCellIsAGap(t *testing.T) {
	huge := stdlibRival
	huge.bytes = math.MaxInt32
	r := runner{self: "/nonexistent", reps: 1}
	require.Empty(t, r.step(t.Context(), step{huge, Job{Workload: "W7", Impl: "stdlib", Params: Params{"pending": 100_000_000, "goroutines": 1}}}))
	require.Len(t, r.gaps, 1)
	require.Contains(t, r.gaps[0].Reason, "GB")
}

func TestAChildThatFailsIsAGap(t *testing.T) {
	r := runner{self: "/nonexistent", reps: 1, workloads: workloads[:1], rivals: []rival{stdlibRival}, quick: true}
	r.done = func(rows []Row) { require.Empty(t, rows) }
	require.NoError(t, r.run(t.Context()))
	require.NotEmpty(t, r.gaps)
	require.Empty(t, r.results)
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-run", "W99"},
		{"-run", "W1,"},
		{"-impl", "nobody"},
		{"-impl", controlName},
		{"-count", "0"},
		{"-count", "x"},
		{"-nonsense"},
		{"extra"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, bench(t.Context(), args, &stdout, &stderr), args)
		require.Empty(t, stdout.String())
		require.NotEmpty(t, stderr.String(), args)
	}
	require.Equal(t, 0, bench(t.Context(), []string{"-h"}, io.Discard, io.Discard))
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-run", "W3,W1", "-impl", "heap, timingwheel"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 5, o.count)
	require.Equal(t, "W1", o.workloads[0].name)
	require.Equal(t, "W3", o.workloads[1].name)
	require.Equal(t, "timingwheel", o.rivals[0].name)
	require.Len(t, o.rivals, 2)
	o, err = parse([]string{"-quick"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 1, o.count)
	require.Len(t, o.workloads, len(workloads))
}

// A bar hidden behind another would hide a value from the reader.
func TestEachRowHasABar(t *testing.T) {
	var rows []Row
	for i, p := range inFlightWorkload.full {
		rows = append(rows, Row{Workload: "W14", Impl: "calls", Params: p, Stats: map[string]Stat{"ns_per_op": {Median: float64(i)}}})
	}
	require.Len(t, rows, 2)
	f := reportPlot{workload: "W14", metric: "ns_per_op", kind: "bars", by: "goroutines"}
	require.NoError(t, drawBars(plot.New(), f, rows))
	f.by = ""
	require.ErrorContains(t, drawBars(plot.New(), f, rows), "two bars of calls at 100k")
	saved, err := savePlots(t.TempDir(), rows)
	require.NoError(t, err)
	require.Len(t, saved, 1)
}

func TestCommandLineNamesNoDirectory(t *testing.T) {
	for _, args := range [][]string{
		{"-run", "W1", "-publish"},
		{"-out", "/tmp/x", "-run", "W1", "-publish"},
		{"-run", "W1", "--out=/tmp/x", "-publish"},
		{"-run", "W1", "-publish", "-out", "/tmp/x"},
	} {
		require.Equal(t, "go run ./bench -run W1 -publish", commandLine(args))
	}
	require.Equal(t, "go run ./bench", commandLine(nil))
}

// quickRun runs the workloads quickly, in real children. It returns the output of -json, and the
// directory with the report. It checks that the report contains each of the plots.
func quickRun(t *testing.T, run string, plots []string, args ...string) (results []Result, dir string) {
	t.Helper()
	dir = t.TempDir()
	var stdout bytes.Buffer
	args = append([]string{"-quick", "-json", "-run", run, "-out", dir}, args...)
	require.Zero(t, bench(t.Context(), args, &stdout, os.Stderr))
	for line := range strings.Lines(stdout.String()) {
		var r struct {
			Workload, Impl string
			Params         Params
			Metrics        Metrics
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&r), line)
		require.Contains(t, strings.Split(run, ","), r.Workload)
		results = append(results, Result{Workload: r.Workload, Impl: r.Impl, Params: r.Params, Metrics: r.Metrics})
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	require.NoError(t, err)
	for _, plot := range plots {
		require.Contains(t, string(report), plot)
		require.FileExists(t, filepath.Join(dir, plot))
	}
	return results, dir
}

func implsIn(results []Result) []string {
	var impls []string
	for _, r := range results {
		impls = append(impls, r.Impl)
	}
	return impls
}

// The JSON form, then a report from the same results.
func TestJSONAndReport(t *testing.T) {
	t.Parallel()
	results, dir := quickRun(t, "W3", nil, "-impl", "timingwheel,stdlib")
	for _, r := range results {
		require.Equal(t, Params{"timers": 2_000}, r.Params)
		for _, m := range fireWorkload.metrics {
			require.Contains(t, r.Metrics, m)
		}
		require.Zero(t, r.Metrics["early"], r.Impl)
	}
	require.Equal(t, []string{"timingwheel", "stdlib"}, implsIn(results))

	again := t.TempDir()
	require.Zero(t, bench(t.Context(), []string{"-from", filepath.Join(dir, "results.json"), "-out", again}, io.Discard, os.Stderr))
	report, err := os.ReadFile(filepath.Join(again, "report.md"))
	require.NoError(t, err)
	for _, want := range []string{"## W3", "| timers=2k | stdlib |", "w3_lateness.png", "A quick run", "Kernel"} {
		require.Contains(t, string(report), want)
	}
	png, err := os.ReadFile(filepath.Join(again, "w3_lateness.png"))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(png, []byte("\x89PNG")))
}

// A burst fails if the page of an observed wheel was not open to its end.
func TestBurstWithThePageOpen(t *testing.T) {
	t.Parallel()
	results, _ := quickRun(t, "W4", []string{"w4_stall.png", "w4_drain.png"}, "-impl", "timingwheel-page")
	require.Equal(t, []string{"timingwheel-page"}, implsIn(results))
}

// The purgatory's workloads, in real children and into a report.
func TestPurgatoryWorkloads(t *testing.T) {
	t.Parallel()
	results, dir := quickRun(t, "W8,W9,W10,W11", []string{
		"w8_cost.png", "w9_held.png", "w9_cpu.png", "w9_latency.png", "w10_cost.png", "w11_rate.png",
	})
	impls := map[string][]string{}
	for _, r := range results {
		impls[r.Workload] = append(impls[r.Workload], r.Impl)
		for _, m := range workloadNamed(r.Workload).metrics {
			_, has := r.Metrics[m]
			require.Equal(t, m != "p99_500k_us" || r.Metrics["max_rate"] >= float64(halfRate), has, "%s: %v", m, r)
		}
		switch r.Workload {
		case "W8":
			require.Zero(t, r.Metrics["watched_after"], "%v", r)
			require.GreaterOrEqual(t, r.Metrics["allocs_per_op"], 1., "the operation itself: %v", r)
		case "W10":
			require.InDelta(t, r.Metrics["ns_per_completion"], r.Metrics["ns_per_watcher"]*float64(r.Params["watchers"]), 1+r.Metrics["ns_per_completion"]*.01, "%v", r)
		}
	}
	require.Equal(t, map[string][]string{
		"W8":  {"purgatory", "purgatory"},
		"W9":  {"purgatory", "purgatory-page"},
		"W10": {"purgatory", "threshold", "purgatory", "threshold"},
		"W11": {"purgatory", "purgatory"},
	}, impls)
	var rec record
	saved, err := os.ReadFile(filepath.Join(dir, "results.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(saved, &rec))
	for _, r := range rec.Results {
		require.Equal(t, r.Workload == "W9", len(r.Curve) > 0)
		for i, m := range r.Curve {
			require.EqualValues(t, firstRate<<i, m["rate"])
			require.Greater(t, m["held"], 0.)
			require.LessOrEqual(t, m["held"], m["rate"])
		}
	}
}

// Requests in flight, in real children.
func TestInFlight(t *testing.T) {
	t.Parallel()
	results, _ := quickRun(t, "W14", nil)
	for _, r := range results {
		require.Positive(t, r.Metrics["ns_per_op"], r.Impl)
		require.Contains(t, r.Metrics, "allocs_per_op", r.Impl)
	}
	require.Equal(t, []string{"calls", "calls-group", "map", "calls", "calls-group", "map"}, implsIn(results))

	// The rival completes requests in each of the ways that are measured.
	m := &mapOfRequests{waiting: map[uint64]*mapRequest{}}
	_, err := m.do(t.Context(), 1, time.Millisecond, func() error { return nil })
	require.ErrorIs(t, err, errMapExpired)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = m.do(ctx, 1, time.Minute, func() error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	_, err = m.do(t.Context(), 1, time.Minute, func() error { return os.ErrClosed })
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, m.hold(1, time.Minute))
	require.ErrorIs(t, m.hold(1, time.Minute), errMapDuplicate)
	require.True(t, m.reply(1, 2))
	require.False(t, m.reply(1, 2))
	require.Empty(t, m.waiting)
	m.close()
}

// Every timer rival provides the properties that the workloads rely on.
func TestRivals(t *testing.T) {
	for _, r := range rivals {
		for _, w := range r.workloads {
			require.GreaterOrEqual(t, workloadIndex(w), 0, "%s does %s", r.name, w)
		}
	}
	t.Run("timingwheel", func(t *testing.T) { testRival(t, openTimingwheel, true, true) })
	t.Run("scheduler", func(t *testing.T) { testRival(t, openScheduler, true, true) })
	t.Run("keyed", func(t *testing.T) { testRival(t, openKeyed, true, true) })
	t.Run("stdlib", func(t *testing.T) { testRival(t, openStdlib, true, true) })
	t.Run("hashedwheel", func(t *testing.T) { testRival(t, openHashedwheel, true, true) })
	t.Run("heap", func(t *testing.T) { testRival(t, openHeap, true, true) })
	// go-zero fires early by up to its interval, and returns true from every Stop.
	t.Run("go-zero", func(t *testing.T) { testRival(t, openGozero, false, false) })
}

// testRival runs a rival in virtual time: a quarter of its timers fire, a quarter are stopped, a
// quarter are postponed and then fire, a quarter stay pending.
func testRival[H any](t *testing.T, open opener[H], punctual, knows bool) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		var mu sync.Mutex
		due := make([]time.Time, n)
		fired := make([]int, n)
		timers, err := open(func(id uint64) {
			mu.Lock()
			defer mu.Unlock()
			fired[id]++
			if early := time.Until(due[id]); punctual && early > 0 {
				t.Errorf("timer %d fired %v early", id, early)
			}
		})
		require.NoError(t, err)
		r := rng(1)
		held := make([]H, n)
		for i := range n {
			d := r.delay(300*time.Millisecond, 500*time.Millisecond)
			if i%4 == 3 {
				d = time.Minute
			}
			due[i] = time.Now().Add(d)
			held[i] = timers.StartID(uint64(i), d)
		}
		time.Sleep(100 * time.Millisecond)
		waitPlaced(timers)
		for i := range n {
			switch i % 4 {
			case 1:
				require.True(t, timers.Stop(held[i]))
				require.Equal(t, !knows, timers.Stop(held[i]))
			case 2:
				d := 600 * time.Millisecond
				due[i] = time.Now().Add(d)
				again, ok := timers.Reset(held[i], d)
				require.True(t, ok)
				held[i] = again
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range n {
			require.Equal(t, (i+1)%2, fired[i], "timer %d", i)
		}
		if knows {
			require.False(t, timers.Stop(held[0]))
		}
		timers.Close()
	})
}

// requireReady skips a test whose rival needs a program that is not installed. With
// LIMBO_REQUIRE set in the environment, as in CI, the test fails instead. It also fails if the
// rival is unavailable for another reason.
func requireReady(t *testing.T, ready func() error) {
	t.Helper()
	err := ready()
	if lacks := new(notInstalled); errors.As(err, &lacks) {
		need.Skip(t, lacks.name, lacks.pkg)
	}
	require.NoError(t, err)
}

// Netty's program draws the same random numbers and prints the same form.
func TestNettyJVM(t *testing.T) {
	t.Parallel()
	requireReady(t, nettyRival.unavailable)
	r := runner{reps: 1}
	j := Job{Workload: "W3", Impl: "netty-jvm", Params: Params{"timers": 2000}, Quick: true, Slack: 1}
	argv, err := nettyRival.argv("", j)
	require.NoError(t, err)
	require.Contains(t, argv, "NettyBench")
	res := r.step(context.Background(), step{nettyRival, j})
	require.Empty(t, r.gaps)
	require.Len(t, res, 1)
	require.Equal(t, Params{"timers": 2000}, res[0].Params)
	require.Zero(t, res[0].Metrics["early"])
	require.Len(t, res[0].Quantiles, len(quantilePoints))
}

func TestDrawTouches(t *testing.T) {
	const n = 2000
	silent, all := drawTouches(n, rng(5), 3*time.Second)
	require.GreaterOrEqual(t, len(all.conns)-all.until[2999], n)
	last := make([]int, n)
	sum := time.Duration(0)
	for i := range last {
		last[i] = -int(silent[i])
		sum += time.Duration(silent[i]) * time.Millisecond
	}
	require.InDelta(t, float64(idleLimit-moveInterval), float64(sum)/n, float64(300*time.Millisecond))
	next := 0
	for ms, until := range all.until {
		for ; next < until; next++ {
			c := all.conns[next]
			require.GreaterOrEqual(t, ms-last[c], 5_000)
			require.LessOrEqual(t, ms-last[c], 25_000)
			last[c] = ms
		}
	}
	// Each connection is touched about once in 15 s.
	require.InDelta(t, float64(n)/15, float64(all.until[2999])/3, float64(n)/15*.25)
}

func TestDelays(t *testing.T) {
	r := rng(9)
	for range 10_000 {
		require.GreaterOrEqual(t, r.longDelay(), time.Minute)
		require.Less(t, r.longDelay(), time.Hour)
		require.GreaterOrEqual(t, r.shortDelay(), time.Second)
		require.Less(t, r.shortDelay(), 31*time.Second)
	}
	seen := make([]bool, 1000)
	for _, i := range r.shuffled(1000) {
		require.False(t, seen[i])
		seen[i] = true
	}
}

func TestTargets(t *testing.T) {
	row := func(impl string, p Params, m Metrics) Row {
		return newRow([]Result{{Workload: "W1", Impl: impl, Params: p, Metrics: m}})
	}
	rows := []Row{
		row("timingwheel", pending1M, Metrics{"ns_per_op": 100, "allocs_per_op": 0}),
		row("stdlib", pending1M, Metrics{"ns_per_op": 400}),
		row("heap", pending1M, Metrics{"ns_per_op": 80}),
		row("netty-jvm", pending1M, Metrics{"ns_per_op": 40}),
		row(controlName, pending1M, Metrics{"ns_per_op": 5}),
	}
	table := targetTable(rows).rows
	require.Equal(t, []string{"W1", "ns, × stdlib at 1M pending", "0.35", "0.25", "yes"}, table[0])
	require.Equal(t, []string{"W1", "ns, × the best rival in Go, at any size", "1", "1.25", "no"}, table[1])
	require.Equal(t, []string{"W1", "allocs_per_op", "0.001", "0", "yes"}, table[2])
	require.Len(t, table, 3)

	// For calls, the slower of a table's own calls and a group's calls counts.
	inFlight := func(impl string, ns float64) Row {
		return newRow([]Result{{Workload: "W14", Impl: impl, Params: Params{"in_flight": 100_000, "goroutines": 1}, Metrics: Metrics{"ns_per_op": ns}}})
	}
	table = targetTable([]Row{inFlight("calls", 60), inFlight("calls-group", 80), inFlight("map", 100)}).rows
	require.Equal(t, [][]string{{"W14", "a table's or a group's ns_per_op, × map's, one goroutine", "0.7", "0.8", "no"}}, table)
}

// A rate that was not held has no p99, and so misses its target for p99, too.
func TestTargetsOfRatesNotHeld(t *testing.T) {
	row := func(impl string, m Metrics) Row {
		return newRow([]Result{{Workload: "W9", Impl: impl, Params: Params{"p50_ms": 20, "p75_ms": 60}, Metrics: m}})
	}
	held, not := Metrics{"max_rate": 1e6, "p99_500k_us": 400}, Metrics{"max_rate": 250_000}
	p99s := func(alone, page Metrics) (all [][]string) {
		for _, line := range targetTable([]Row{row("purgatory", alone), row("purgatory-page", page)}).rows {
			if strings.HasPrefix(line[1], "p99") {
				all = append(all, line[3:])
			}
		}
		return all
	}
	require.Equal(t, [][]string{{"400", "yes"}, {"1", "yes"}}, p99s(held, held))
	require.Equal(t, [][]string{{"400", "yes"}, {"+Inf", "no"}}, p99s(held, not))
	require.Equal(t, [][]string{{"+Inf", "no"}, {"NaN", "no"}}, p99s(not, not))
}

// An interrupted run ends and leaves no child process.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	self, err := os.Executable()
	require.NoError(t, err)
	r := runner{self: self, reps: 1, quick: true, workloads: workloads[4:5], rivals: []rival{stdlibRival}, done: func([]Row) {}}
	require.ErrorIs(t, r.run(ctx), context.DeadlineExceeded)
	require.Empty(t, r.results, "its children sleep for 5 s and then have a result")
}

// An interrupted run keeps the results measured so far.
func TestEndedRunIsSaved(t *testing.T) {
	dir := t.TempDir()
	rec := record{Count: 1, Results: []Result{{Workload: "W5", Impl: "stdlib", Params: Params{"timers": 1}, Metrics: Metrics{"cpu_ms": 1, "wakeups": 2}}}}
	require.NoError(t, rec.save(filepath.Join(dir, "new")))
	var out bytes.Buffer
	require.Zero(t, bench(t.Context(), []string{"-from", filepath.Join(dir, "new", "results.json"), "-out", dir, "-json"}, &out, os.Stderr))
	require.JSONEq(t, `{"workload":"W5","impl":"stdlib","params":{"timers":1},"metrics":{"cpu_ms":1,"wakeups":2}}`, out.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 1, bench(ctx, []string{"-run", "W5", "-impl", "stdlib", "-quick", "-json", "-out", filepath.Join(dir, "ended")}, io.Discard, os.Stderr))
	require.FileExists(t, filepath.Join(dir, "ended", "results.json"))
}

// Results of several runs make one report, with each workload from the last run that has it.
// Results of another machine are rejected, and so is a mix of quick and full runs.
func TestRecordsOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	of := func(name, commit string, quick bool, cores int, workloads ...string) string {
		rec := record{Machine: Machine{Commit: commit, Cores: cores, LoadBefore: "0.10"}, Quick: quick, Count: 5}
		for _, w := range workloads {
			rec.Results = append(rec.Results, Result{Workload: w, Impl: commit})
			rec.Gaps = append(rec.Gaps, Gap{Workload: w, Impl: commit})
		}
		require.NoError(t, rec.save(filepath.Join(dir, name)))
		return filepath.Join(dir, name, "results.json")
	}
	first := of("first", "aaa", false, 2, "W1", "W8", "W9")
	got, err := loadRecords([]string{first, of("second", "bbb", false, 2, "W9", "W10"), of("third", "ccc", false, 2, "W10")})
	require.NoError(t, err)
	var from []string
	for i, r := range got.Results {
		from = append(from, r.Workload+r.Impl)
		require.Equal(t, r.Workload+r.Impl, got.Gaps[i].Workload+got.Gaps[i].Impl)
	}
	require.Equal(t, []string{"W1aaa", "W8aaa", "W9bbb", "W10ccc"}, from)
	require.Equal(t, "aaa; W9, W10 at bbb, with a load average of 0.10 before; W10 at ccc, with a load average of 0.10 before", got.Machine.Commit)
	_, err = loadRecords([]string{first, of("quick", "ddd", true, 2, "W9")})
	require.ErrorContains(t, err, "quick true")
	_, err = loadRecords([]string{first, of("other", "eee", false, 64, "W9")})
	require.ErrorContains(t, err, "64 cores")
	_, err = loadRecords([]string{first, filepath.Join(dir, "none.json")})
	require.ErrorContains(t, err, "none.json")
}
