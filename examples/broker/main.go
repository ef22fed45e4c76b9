// Command broker is a small Kafka cluster in one process. Its brokers speak Kafka's protocol to
// clients and to each other, and keep the requests that have to wait (fetches, produces, joins, and
// more) in limbo purgatories. Without flags it starts a cluster, puts it under real clients and
// faults, and checks the results; with -serve it serves.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/broker/tour"
	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its environment passed in, for tests.
func run(args []string, stdout, stderr io.Writer) int {
	// The brokers log to stderr; with -json, everything except the summary goes there.
	stderr = selfcheck.Shared(stderr)

	cfg, _ := cluster.Config{}.WithDefaults() // in range; shown by -help
	load := tour.DefaultLoad()
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	serve := flags.Bool("serve", false, "serve until SIGINT or SIGTERM instead of driving a load; commands on standard input stop, pause, slow or cut off brokers: see help there")
	asJSON := flags.Bool("json", false, "print the tour's summary as one JSON object on the last line of stdout; the rest goes to stderr")
	flags.DurationVar(&load.Duration, "duration", load.Duration, "how long the tour produces, at least")
	flags.IntVar(&load.Polls, "polls", load.Polls, "long polls the tour keeps parked")
	flags.IntVar(&load.Rate, "rate", load.Rate, "records per second of the tour's steady load")
	flags.BoolVar(&load.Faults, "faults", load.Faults, "make faults on the tour; one broker alone has none to make")
	flags.Uint64Var(&load.Seed, "seed", load.Seed, "order of the tour's faults, and whom they meet; 0 is the one the README tells")
	flags.IntVar(&cfg.Brokers, "brokers", cfg.Brokers, "brokers of the cluster, 1 to 16")
	flags.StringVar(&cfg.Addr, "addr", cfg.Addr, "host:port of the first broker, the others take the next ports; port 0 picks free ones")
	flags.BoolVar(&cfg.AllowRemote, "allow-remote", false, "allow an address that is not loopback (there is no authentication)")
	flags.IntVar(&cfg.Wire.MaxConnections, "max-connections", cfg.Wire.MaxConnections, "connections open at once")
	flags.IntVar(&cfg.Wire.MaxInFlight, "max-in-flight", cfg.Wire.MaxInFlight, "requests pipelined on one connection before it is read no further")
	flags.IntVar(&cfg.Wire.MaxFrame, "max-frame", cfg.Wire.MaxFrame, "bytes of a produce request")
	flags.IntVar(&cfg.MaxBatch, "max-batch", cfg.MaxBatch, "bytes of a record batch")
	flags.IntVar(&cfg.Meta.MaxTopics, "max-topics", cfg.Meta.MaxTopics, "topics")
	flags.IntVar(&cfg.Meta.MaxPartitions, "max-partitions", cfg.Meta.MaxPartitions, "partitions of all topics")
	flags.Int64Var(&cfg.Meta.RetentionBytes, "retention-bytes", cfg.Meta.RetentionBytes, "bytes kept per partition")
	flags.Int64Var(&cfg.MaxLogSum, "log-bytes", cfg.MaxLogSum, "bytes kept in all partitions of a broker together")
	flags.IntVar(&cfg.MaxParked, "max-parked", cfg.MaxParked, "requests of a kind parked at once at a broker")
	replicaLag := flags.Duration("replica-lag", cfg.ReplicaLag, "a follower that is behind for longer is not in sync; 1s on the tour")
	brokerSession := flags.Duration("broker-session", cfg.Meta.BrokerSession, "a broker that is silent for longer is not alive; 2s on the tour")
	flags.DurationVar(&cfg.Wire.IdleTimeout, "idle-timeout", cfg.Wire.IdleTimeout, "close connections that ask nothing for this long")
	autoCreate := flags.Bool("auto-create", true, "create topics that clients name and allow to be created")
	partitions := flags.Int("partitions", int(cfg.Meta.DefaultPartitions), "partitions of topics created without a number")
	page := livepage.AddFlag(flags)
	logLevel := selfcheck.AddLogLevel(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	zero := ""
	flags.Visit(func(f *flag.Flag) { // in the configuration, zero means the default
		if v := f.Value.String(); (v == "0" || v == "0s") && !slices.Contains([]string{"polls", "rate", "seed"}, f.Name) {
			zero = f.Name
		}
	})
	bad := func(format string, a ...any) int {
		_, _ = fmt.Fprintf(stderr, "broker: "+format+"\n", a...)
		return 2
	}
	switch {
	case zero != "":
		return bad("-%s is 0, must be more", zero)
	case flags.NArg() > 0:
		return bad("unexpected argument %q", flags.Arg(0))
	case *partitions < 1 || *partitions > cfg.Meta.MaxPartitions:
		return bad("-partitions is %d, must be 1 to -max-partitions, %d", *partitions, cfg.Meta.MaxPartitions)
	case load.Duration <= 0:
		return bad("-duration is %v, must be more than 0", load.Duration)
	case load.Polls < 0:
		return bad("-polls is %d, must be at least 0", load.Polls)
	case load.Rate < 0:
		return bad("-rate is %d, must be at least 0", load.Rate)
	}
	if err := page.Check(); err != nil {
		return bad("%v", err)
	}
	cfg.NoAutoCreate = !*autoCreate
	cfg.Meta.DefaultPartitions = int32(*partitions)
	cfg.Meta.Replication = int16(min(int(cfg.Meta.Replication), max(cfg.Brokers, 1)))
	cfg.Meta.MinISR = min(cfg.Meta.MinISR, int32(cfg.Meta.Replication))

	cfg.Logger = logLevel.Logger(stderr, *serve)
	cfg.Meta.Logger = cfg.Logger
	if !*serve { // the tour needs faults to be noticed soon, and has the machine for itself
		tour.QuickFaultDetection(&cfg)
	}
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "replica-lag":
			cfg.ReplicaLag = *replicaLag
		case "broker-session":
			cfg.Meta.BrokerSession = *brokerSession
		}
	})
	if *serve {
		return runServe(cfg, page, os.Stdin, stdout, stderr)
	}
	return tour.Run(cfg, load, page, *asJSON, stdout, stderr)
}

// shutdownTimeout limits how long parked requests and slow clients may delay the exit.
const shutdownTimeout = 10 * time.Second

func runServe(cfg cluster.Config, page *livepage.Page, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// First, so that a port in use leaves no brokers to shut down.
	err := page.Start(func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, "broker: "+format+"\n", args...) })
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "broker: %v\n", err)
		return 1
	}
	defer func() { _ = page.Stop() }()
	cfg.Observe = page.Registry()
	c, err := cluster.New(cfg)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "broker: listening on %s\n", strings.Join(c.Addrs(), ","))
	go runCommands(c, stdin, stdout) // ends with the process: a read of standard input cannot be cancelled
	<-ctx.Done()
	stop() // a second signal ends the process the usual way

	parked := c.Stats().Parked
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "broker: shutdown: %v\n", err)
		return 1
	}
	// kcat.sh reads the codecs, to check that batches which a client was told to compress arrived
	// compressed.
	done := c.Stats()
	_, _ = fmt.Fprintf(stdout, "broker: batches none=%d gzip=%d snappy=%d lz4=%d zstd=%d\n", done.Batches[0], done.Batches[1], done.Batches[2], done.Batches[3], done.Batches[4])
	_, _ = fmt.Fprintf(stdout, "broker: stopped: answered %d requests, %d were parked, %d panics\n", done.Answers, parked, done.Panics)
	if done.Panics > 0 {
		return 1
	}
	return 0
}
