// Command tour proves timerd's promises: it runs processes that schedule timers, run them and
// answer their callbacks, kills and pauses some of them, and checks what they did. See README.md
// in the folder above.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	defaultTimers = 50_000
	defaultSpan   = 20 * time.Second
	minSpan       = 5 * time.Second
	maxSpan       = 10 * time.Minute
)

func main() {
	if isChild() {
		os.Exit(runChild())
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	o.Stdout, o.Stderr = os.Stdout, os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := runTour(ctx, o)
	stop()
	os.Exit(status)
}

// parse reads the flags. An error names the flag, its value and the range.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{Timers: defaultTimers}
	fs := flag.NewFlagSet("tour", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.Store, "store", onPebble, "the `store`: pebble, redis or cluster; redis and cluster need a redis-server on PATH")
	fs.BoolVar(&o.JSON, "json", false, "the last line of the output is one JSON object")
	fs.DurationVar(&o.Span, "span", defaultSpan, "how long the load lasts, 5s to 10m")
	fs.Uint64Var(&o.Seed, "seed", 0, "of the random numbers; 0: drawn")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("tour: there is an argument %q, must be flags only", fs.Arg(0))
	case o.Store != onPebble && o.Store != onRedis && o.Store != onCluster:
		return o, fmt.Errorf("tour: -store is %q, must be pebble, redis or cluster", o.Store)
	case o.Span < minSpan || o.Span > maxSpan:
		return o, fmt.Errorf("tour: -span is %v, must be 5s to 10m", o.Span)
	}
	return o, nil
}
