package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is columns of text with headings. The first columns are aligned left, numbers right.
type table struct {
	head []string
	left int
	rows [][]string
}

// workloadTable has all rows of a workload: size, impl, and the metrics, with dashes for those
// that a rival does not have.
func workloadTable(w workload, rows []Row) table {
	t := table{head: append([]string{"size", "impl"}, w.metrics...), left: 2}
	for _, row := range rows {
		if row.Workload != w.name {
			continue
		}
		name := row.Impl
		if name == controlName {
			name = "(control)"
		}
		cells := []string{row.Params.String(), name}
		for _, m := range w.metrics {
			cells = append(cells, row.cell(m))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

func (t table) text(w io.Writer) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	line := func(row []string) {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i < t.left {
				c += pad
			} else {
				c = pad + c
			}
			_, _ = fmt.Fprint(w, c, "  ")
		}
		_, _ = fmt.Fprintln(w)
	}
	line(t.head)
	for i := range widths {
		_, _ = fmt.Fprint(w, strings.Repeat("─", widths[i]), "  ")
	}
	_, _ = fmt.Fprintln(w)
	size := ""
	for i, row := range t.rows {
		if i > 0 && row[0] != size && len(t.rows) > 12 {
			_, _ = fmt.Fprintln(w)
		}
		size = row[0]
		line(row)
	}
}

func (t table) markdown(w io.Writer) {
	line := func(cells []string) { _, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---"
		if i >= t.left {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
}

// printTables prints all tables as text.
func printTables(w io.Writer, rec record) {
	rows := rowsOf(rec.Results)
	for _, wl := range workloads {
		t := workloadTable(wl, rows)
		if len(t.rows) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "\n%s %s\n\n", wl.name, wl.title)
		t.text(w)
	}
	if t := targetTable(rows); len(t.rows) > 0 {
		_, _ = fmt.Fprintf(w, "\nTargets\n\n")
		t.text(w)
	}
	_, _ = fmt.Fprintln(w)
}
