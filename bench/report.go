package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// saveReport writes the Markdown report into dir and its plots into plotDir. The report refers
// to plotDir as plotRef.
func saveReport(dir, name, plotDir, plotRef string, rec record) error {
	for _, d := range []string{dir, plotDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	rows := rowsOf(rec.Results)
	plots, err := savePlots(plotDir, rows)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writeReport(&b, rec, rows, plots, plotRef)
	return os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
}

func writeReport(b io.Writer, rec record, rows []Row, plots []savedPlot, plotRef string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) }
	m := rec.Machine
	line("# Benchmarks\n")
	line("Made by `%s`; do not edit by hand.", m.Command)
	if rec.Quick {
		line("\n**A quick run: smaller sizes, short measurements. A preview, not results to quote.**")
	}
	line("")
	t := table{head: []string{"", ""}, left: 2, rows: [][]string{
		{"Processor", m.CPU},
		{"Cores", fmt.Sprint(m.Cores)},
		{"Memory", fmt.Sprintf("%.1f GiB", m.MemoryGB)},
		{"Kernel", m.Kernel},
		{"Go", m.Go},
	}}
	if m.Java != "" {
		t.rows = append(t.rows, []string{"Java", m.Java})
	}
	t.rows = append(t.rows, [][]string{
		{"Commit", m.Commit},
		{"Date", fmt.Sprintf("%s, %v long", m.Begun.UTC().Format(time.RFC1123), m.Took)},
		{"Load average", fmt.Sprintf("%s before, %s at the end", m.LoadBefore, m.LoadAfter)},
	}...)
	t.markdown(b)
	each := "Each value is from one run."
	if rec.Count > 1 {
		each = fmt.Sprintf("Each value is the median of %d repetitions, with the smallest and the largest in\nbrackets.", rec.Count)
	}
	line("\n%s\n%s\n", each, strings.TrimSpace(howMeasured))

	line("## The rivals\n")
	t = table{head: []string{"impl", "set-up"}, left: 2}
	shown := map[string]bool{}
	for _, row := range rows {
		shown[row.Impl] = true
	}
	for _, r := range append(slices.Clone(rivals), controlRival) {
		if shown[r.name] {
			t.rows = append(t.rows, []string{r.name, r.setup})
		}
	}
	t.markdown(b)

	if t = targetTable(rows); len(t.rows) > 0 {
		line("\n## Targets\n")
		t.markdown(b)
	}
	for _, w := range workloads {
		t := workloadTable(w, rows)
		if len(t.rows) == 0 {
			continue
		}
		line("\n## %s %s\n", w.name, w.title)
		t.markdown(b)
		for _, p := range plots {
			if p.workload == w.name {
				line("\n![%s](%s)", p.title, plotRef+"/"+p.file)
			}
		}
	}
	if len(rec.Gaps) > 0 {
		line("\n## Gaps\n")
		line("What was not measured, and why. A dash in a table is a metric that the rival\ndoes not have.\n")
		t = table{head: []string{"", "impl", "size", "why"}, left: 4}
		for _, g := range rec.Gaps {
			t.rows = append(t.rows, []string{g.Workload, g.Impl, g.sizes(), g.Reason})
		}
		t.markdown(b)
	}
}

const howMeasured = `
Every repetition of every impl at every size is a child process of its own. The
impls take turns, so that a drift of the machine affects all alike. All get the
same delays, from the same seed, keep their handles in the same way, and are
called through the same interface. Where a callback need not know which timer it
is for, impls that take functions get one function for all timers; where it must
(W3, W6), they get a closure each, as users write it. The row *(control)* is the
loop with timers that do nothing: its values are part of those of every other
row, and have been subtracted from none. A size that was reduced for an impl is
shown as a size of its own. CPU is the user and system time of the whole process
by getrusage, wake-ups are its voluntary context switches; memory is the live heap
after a full collection, handles included, and in W7 the resident memory. 100M
timers are held once in a run, so those rows have no brackets. In W3 the control's
lateness is that of a goroutine that only sleeps until each of limbo's ticks. In W4 the control
runs beside one goroutine for each core, woken when the burst would be due, that
works and yields as a wheel's workers do: the delay of any goroutine then, with or
without timers. In W12 client and server are two processes that share the machine,
the client is the same for both, and a server's CPU is read from its process's own
clock; the control is a server that passes a frame on from one connection to another,
with as many of them. In W13 and W16 a rival's server, if it has one, is a process that shares the machine
too; each of their parts has a new, empty store. In W17 the memory is what is
resident beyond what it was before the first search, with the folder's engine in the same process. In W15 the server is a process of
its own, and its memory is its live heap and its stacks; *net/http* is the same server
whose handlers wait on a channel each. longpoll-nodes is one process: nodes, brokers and
clients.
`
