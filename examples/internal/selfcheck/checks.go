package selfcheck

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Checks is the table of results, in the order of the calls to Add and Note. The zero value is
// empty. It is not safe for concurrent use.
type Checks struct{ rows []row }

type row struct{ mark, what, metrics string }

const (
	passed = "ok"
	failed = "FAIL"
	noted  = "" // values without a required range
)

// Add adds a check: its result, the property checked, and the values found.
func (c *Checks) Add(ok bool, what, format string, args ...any) {
	mark := passed
	if !ok {
		mark = failed
	}
	c.rows = append(c.rows, row{mark, what, fmt.Sprintf(format, args...)})
}

// Note adds values that are worth reading but not checked.
func (c *Checks) Note(what, format string, args ...any) {
	c.rows = append(c.rows, row{noted, what, fmt.Sprintf(format, args...)})
}

// AddProblems adds a failed check for each problem.
func (c *Checks) AddProblems(list Problems) {
	for _, p := range list {
		c.Add(false, "problem", "%s", p)
	}
}

// OK reports whether at least one check passed and none failed.
func (c *Checks) OK() bool {
	ok, failures := c.count()
	return ok > 0 && failures == 0
}

func (c *Checks) count() (ok, failures int) {
	for _, r := range c.rows {
		switch r.mark {
		case passed:
			ok++
		case failed:
			failures++
		}
	}
	return ok, failures
}

// Print writes the table and the verdict.
func (c *Checks) Print(out io.Writer) {
	width := 0
	for _, r := range c.rows {
		width = max(width, utf8.RuneCountInString(r.what))
	}
	fmt.Fprintln(out)
	for _, r := range c.rows {
		fmt.Fprintf(out, "%-4s  %-*s  %s\n", r.mark, width, r.what, r.metrics)
	}
	ok, failures := c.count()
	if failures > 0 {
		fmt.Fprintf(out, "\n%d of %d checks FAILED\n", failures, ok+failures)
	} else {
		fmt.Fprintf(out, "\nall %d checks passed\n", ok)
	}
}

// maxProblems is the number of problems that are kept: a broken program reports thousands.
const maxProblems = 20

// Problems is a list of problems, one sentence each. It keeps the first 20.
type Problems []string

// Add adds a problem.
func (p *Problems) Add(format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}
