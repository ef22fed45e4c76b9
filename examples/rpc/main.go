// Command rpc shows calls.Table at work: a client and a server with 100,000 requests in flight on
// one TCP connection. Replies come in any order, twice, late or never, while callers give up and a
// connection is lost. It checks the outcome of each call.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, network.Machine, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is main with its environment passed in, for tests.
func run(ctx context.Context, on network.Network, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rpc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	inFlight := flags.Int("calls", 100_000, "calls in flight on one connection, 100 to 1,000,000")
	asJSON := flags.Bool("json", false, "print the summary as one line of JSON, the last one of stdout; the rest goes to stderr")
	seed := flags.Uint64("seed", 1, "of what the calls do")
	page := livepage.AddFlag(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	switch {
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "rpc: unexpected argument %q\n", flags.Arg(0))
		return 2
	case *inFlight < 100 || *inFlight > 1_000_000:
		fmt.Fprintf(stderr, "rpc: -calls is %d, must be 100 to 1000000\n", *inFlight)
		return 2
	}
	if err := page.Check(); err != nil {
		fmt.Fprintf(stderr, "rpc: %v\n", err)
		return 2
	}
	return selfcheck.Run("rpc", *asJSON, stdout, stderr, func(out io.Writer) (selfcheck.Summary, error) {
		return runScenario(ctx, on, *inFlight, *seed, leadTimes(*inFlight), page, out)
	})
}
