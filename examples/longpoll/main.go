// Command longpoll is a long-poll service that scales out: several nodes, any of which a client may
// ask, and a bus that carries each event to all nodes. Without flags it starts three nodes, with
// the Kafka cluster of examples/broker as their bus, and 10,000 clients that poll; it publishes
// events, kills a node and a broker, and checks the outcome of each poll and each event. With
// -serve it serves people.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// command is main with its environment passed in, for tests.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stderr = selfcheck.Shared(stderr) // the brokers log to it; with -json, the rest goes there too
	sc := options{polls: 10_000, nodes: 3, faultFree: 5 * time.Second, faults: 3 * time.Second, rate: 50, topic: "longpoll-events", seed: 1}
	flags := flag.NewFlagSet("longpoll", flag.ContinueOnError)
	flags.SetOutput(stderr)
	serve := flags.Bool("serve", false, "serve until SIGINT or SIGTERM, for people: open two of the addresses that it prints")
	asJSON := flags.Bool("json", false, "print the summary as one line of JSON, the last one of stdout; the rest goes to stderr")
	brokers := flags.String("brokers", "", "host:port of a real Kafka cluster's brokers, with commas between; default: one in this process")
	flags.StringVar(&sc.topic, "topic", sc.topic, "the topic of the events; it is created if need be")
	flags.IntVar(&sc.polls, "polls", sc.polls, "clients that poll, 5 to 100,000")
	flags.IntVar(&sc.nodes, "nodes", sc.nodes, "nodes, 1 to 16")
	flags.IntVar(&sc.rate, "rate", sc.rate, "events a second, 1 to 10,000")
	flags.DurationVar(&sc.faultFree, "calm", sc.faultFree, "how long events are published before the faults, 100ms to 1h")
	flags.DurationVar(&sc.faults, "faults", sc.faults, "and after each of them, 100ms to 1h")
	flags.Uint64Var(&sc.seed, "seed", sc.seed, "of where events are published, and what dies")
	sc.page = livepage.AddFlag(flags)
	logLevel := selfcheck.AddLogLevel(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	bad := func(format string, a ...any) int {
		fmt.Fprintf(stderr, "longpoll: "+format+"\n", a...)
		return 2
	}
	within := func(d time.Duration) bool { return d >= 100*time.Millisecond && d <= time.Hour }
	switch {
	case flags.NArg() > 0:
		return bad("unexpected argument %q", flags.Arg(0))
	case sc.polls < perRoom || sc.polls > 100_000:
		return bad("-polls is %d, must be 5 to 100000", sc.polls)
	case sc.nodes < 1 || sc.nodes > 16:
		return bad("-nodes is %d, must be 1 to 16", sc.nodes)
	case sc.rate < 1 || sc.rate > 10_000:
		return bad("-rate is %d, must be 1 to 10000", sc.rate)
	case !within(sc.faultFree):
		return bad("-calm is %v, must be 100ms to 1h", sc.faultFree)
	case !within(sc.faults):
		return bad("-faults is %v, must be 100ms to 1h", sc.faults)
	case sc.topic == "":
		return bad("-topic is empty")
	}
	if err := sc.page.Check(); err != nil {
		return bad("%v", err)
	}
	if *brokers != "" {
		sc.brokers = strings.Split(*brokers, ",")
	}
	sc.logger = logLevel.Logger(stderr, *serve)
	if *serve {
		return serveForPeople(ctx, sc, stdout, stderr)
	}
	return selfcheck.Run("longpoll", *asJSON, stdout, stderr, func(out io.Writer) (selfcheck.Summary, error) {
		return runScenario(ctx, sc, out)
	})
}

func serveForPeople(ctx context.Context, sc options, stdout, stderr io.Writer) int {
	p := &run{options: sc, Progress: selfcheck.NewProgress(stdout)}
	err := p.open(ctx)
	if err == nil {
		p.Printf("open two of these in a browser, and type in one")
		<-ctx.Done()
	}
	if e := p.close(); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintf(stderr, "longpoll: %v\n", err)
		return 1
	}
	return 0
}
