package selfcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// Summary is the result of a program that checks itself. Its exported fields are the JSON.
type Summary interface {
	Checks() *Checks
}

// Run calls run, prints the checks of the returned summary, and returns the exit status: 0 if all
// checks passed, otherwise 1. It prints to stdout; with asJSON, it prints to stderr, except for the
// summary, which goes to stdout as one line of JSON.
func Run(name string, asJSON bool, stdout, stderr io.Writer, run func(out io.Writer) (Summary, error)) int {
	out := stdout
	if asJSON {
		out = stderr
	}
	s, err := run(out)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	checks := s.Checks()
	checks.Print(out)
	if asJSON {
		line, err := json.Marshal(s)
		if err != nil {
			panic("selfcheck: a summary that is no JSON: " + err.Error()) // summaries hold only numbers and strings
		}
		fmt.Fprintf(stdout, "%s\n", line)
	}
	if !checks.OK() {
		return 1
	}
	return 0
}

// goroutinesTimeout is how long Goroutines waits for goroutines that have been stopped and are
// about to return.
const goroutinesTimeout = time.Minute

// Goroutines returns how many more goroutines there are than before. It waits up to a minute for
// the difference to become 0.
func Goroutines(before int) (leaked int) { return waitForCount(before, runtime.NumGoroutine) }

func waitForCount(before int, count func() int) (leaked int) {
	for end := time.Now().Add(goroutinesTimeout); ; time.Sleep(time.Millisecond) {
		leaked = max(0, count()-before)
		if leaked == 0 || time.Now().After(end) {
			return leaked
		}
	}
}

// Sleep waits for d and returns nil. If ctx ends first, it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
