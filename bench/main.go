// Command bench compares limbo's timers with other implementations, and measures its purgatory
// under load and the broker built on both. See README.md in its directory; BENCHMARKS.md has
// published results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if runAsChild() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	removeScratch()
	os.Exit(code)
}

// runAsChild runs the job or the server for which another process of this binary started this one,
// and reports whether there was one.
func runAsChild() bool {
	var err error
	name, arg, serves := strings.Cut(os.Getenv(serverVariable), " ")
	switch {
	case serves:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = servers[name](ctx, arg)
		stop()
	case len(os.Args) == 3 && os.Args[1] == childFlag:
		// When memory is short, collect more often to avoid being killed.
		if free := memInfo("MemAvailable"); free > 0 {
			debug.SetMemoryLimit(free / 10 * 9)
		}
		err = child(os.Args[2])
	default:
		return false
	}
	if err != nil {
		warn("%v", err)
		os.Exit(1)
	}
	return true
}

// serverVariable makes this binary only a server. Its value is a name in servers, a space, and
// the server's argument.
const serverVariable = "LIMBO_BENCH_SERVER"

// servers are the servers without a program of their own. Each prints "listening on host:port"
// and serves until ctx is done.
var servers = map[string]func(ctx context.Context, arg string) error{
	"kfake": serveKfake, "broker": serveBroker, "relay": serveRelay, "nats": serveNATS, "polls": servePolls,
}

// removeScratch removes the intermediate files. Call it only at the end of the process, because
// commands that are built once refer to them.
func removeScratch() {
	if dir, err := scratch(); err == nil {
		_ = os.RemoveAll(dir)
	}
}

// options are the flags.
type options struct {
	quick, json, publish bool
	count                int
	out, from            string
	workloads            []workload
	rivals               []rival
}

// errFlags is returned for wrong flags that were reported before.
var errFlags = errors.New("wrong flags")

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var run, impl string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&run, "run", "", "workloads, as W1,W3 (default: all)")
	f.StringVar(&impl, "impl", "", "impls, as timingwheel,stdlib (default: all)")
	f.BoolVar(&o.quick, "quick", false, "smaller sizes, shorter, once each: a preview, not results to quote")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line and nothing else; no report, unless -out or -publish is given")
	f.IntVar(&o.count, "count", 0, "repetitions, of which the median is taken (default 5, with -quick 1)")
	f.StringVar(&o.out, "out", "", "directory for the report, its plots and results.json (default bench/out)")
	f.BoolVar(&o.publish, "publish", false, "also write the report to BENCHMARKS.md, and its plots to bench/plots")
	f.StringVar(&o.from, "from", "", "measure nothing: make the report from this results.json; of several, separated by commas, each workload comes from the last that has it")
	if err := f.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = errFlags
		}
		return o, err
	}
	fail := func(format string, args ...any) (options, error) {
		_, _ = fmt.Fprintf(stderr, "bench: "+format+"\n", args...)
		return o, errFlags
	}
	if f.NArg() > 0 {
		return fail("unexpected argument %q", f.Arg(0))
	}
	countSet := false
	f.Visit(func(f *flag.Flag) { countSet = countSet || f.Name == "count" })
	switch {
	case !countSet && o.quick:
		o.count = 1
	case !countSet:
		o.count = 5
	case o.count < 1:
		return fail("-count is %d, must be at least 1", o.count)
	}
	var err error
	if o.workloads, err = selectNamed("-run", run, workloads, func(w workload) string { return w.name }); err != nil {
		return fail("%v", err)
	}
	if o.rivals, err = selectNamed("-impl", impl, rivals, func(r rival) string { return r.name }); err != nil {
		return fail("%v", err)
	}
	return o, nil
}

// selectNamed returns the elements of all named in list, in the order of all, or all of them if
// list is "".
func selectNamed[T any](flagName, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var names, known []string
	for n := range strings.SplitSeq(list, ",") {
		names = append(names, strings.TrimSpace(n))
	}
	var selected []T
	for _, x := range all {
		known = append(known, name(x))
		if slices.Contains(names, name(x)) {
			selected = append(selected, x)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("%s: there is no %q; there are %s", flagName, n, strings.Join(known, ", "))
		}
	}
	return selected, nil
}

func bench(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := benchmark(ctx, o, args, stdout); err != nil {
		warn("%v", err)
		return 1
	}
	return 0
}

func benchmark(ctx context.Context, o options, args []string, stdout io.Writer) error {
	root, err := repository()
	if err != nil {
		return err
	}
	if o.out == "" && (!o.json || o.publish) {
		o.out = filepath.Join(root, "bench", "out")
	}
	var rec record
	if o.from != "" {
		if rec, err = loadRecords(strings.Split(o.from, ",")); err != nil {
			return err
		}
		if o.json {
			printLines(stdout, rowsOf(rec.Results))
		}
	} else if rec, err = measure(ctx, o, root, args, stdout); err != nil {
		return err
	}
	for _, g := range rec.Gaps {
		warn("gap: %s %s %s: %s", g.Workload, g.Impl, g.sizes(), g.Reason)
	}
	if !o.json {
		printTables(stdout, rec)
	}
	if o.out == "" {
		return nil
	}
	if err := saveReport(o.out, "report.md", o.out, ".", rec); err != nil {
		return err
	}
	if err := rec.save(o.out); err != nil {
		return err
	}
	warn("report, plots and results.json are in %s", o.out)
	if o.publish {
		if err := saveReport(root, "BENCHMARKS.md", filepath.Join(root, "bench", "plots"), "bench/plots", rec); err != nil {
			return err
		}
		warn("and in BENCHMARKS.md, with its plots in bench/plots")
	}
	return nil
}

func measure(ctx context.Context, o options, root string, args []string, stdout io.Writer) (record, error) {
	self, err := os.Executable()
	if err != nil {
		return record{}, err
	}
	rec := record{Machine: thisMachine(root, args), Quick: o.quick, Count: o.count}
	r := runner{self: self, workloads: o.workloads, rivals: o.rivals, quick: o.quick, reps: o.count}
	r.done = func(rows []Row) {
		if o.json {
			r.progress.clear()
			printLines(stdout, rows)
		}
		rec.Results, rec.Gaps = r.results, r.gaps
		rec.Machine.Took = time.Since(rec.Machine.Begun).Round(time.Second)
		rec.Machine.LoadAfter = load()
		if o.out == "" {
			return
		}
		// A run takes an hour. After an interruption the results so far are kept, and -from
		// makes a report of them.
		if err := rec.save(o.out); err != nil {
			warn("%v", err)
		}
	}
	err = r.run(ctx)
	return rec, err
}

// printLines prints the JSON form, without the control.
func printLines(w io.Writer, rows []Row) {
	for _, row := range rows {
		if row.Impl == controlName {
			var parts []string
			for _, m := range workloadNamed(row.Workload).metrics {
				if s, ok := row.Stats[m]; ok {
					parts = append(parts, m+" "+number(s.Median))
				}
			}
			warn("control: %s %s: %s", row.Workload, row.Params, strings.Join(parts, ", "))
			continue
		}
		b, err := json.Marshal(row.line())
		must(err)
		_, _ = fmt.Fprintf(w, "%s\n", b)
	}
}
