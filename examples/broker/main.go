// Command broker is a small Kafka cluster in one process. Its brokers speak
// Kafka's protocol to clients and to each other, and keep the requests that have
// to wait (fetches, produces, joins, and more) in limbo purgatories. Without
// flags it starts, takes real clients on a tour of faults and checks what came
// of it; with -serve it serves.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings passed in, so that tests can call it.
func run(args []string, stdout, stderr io.Writer) int {
	cfg := defaultConfig()
	cfg.logger = slog.New(slog.NewTextHandler(stderr, nil))
	load := defaultLoad()
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	serve := flags.Bool("serve", false, "serve until SIGINT or SIGTERM instead of driving a load; commands on standard input stop, pause, slow or cut off brokers: see help there")
	asJSON := flags.Bool("json", false, "print the tour's summary as one JSON object on the last line of stdout; the rest goes to stderr")
	flags.DurationVar(&load.duration, "duration", load.duration, "how long the tour produces, at least")
	flags.IntVar(&load.polls, "polls", load.polls, "long polls the tour keeps parked")
	flags.IntVar(&load.rate, "rate", load.rate, "records per second of the tour's steady load")
	flags.BoolVar(&load.faults, "faults", load.faults, "make faults on the tour; one broker alone has none to make")
	flags.Uint64Var(&load.seed, "seed", load.seed, "order of the tour's faults, and whom they meet; 0 is the one the README tells")
	flags.IntVar(&cfg.brokers, "brokers", cfg.brokers, "brokers of the cluster, 1 to 16")
	flags.StringVar(&cfg.addr, "addr", cfg.addr, "host:port of the first broker, the others take the next ports; port 0 picks free ones")
	flags.BoolVar(&cfg.allowRemote, "allow-remote", false, "allow an address that is not loopback (there is no authentication)")
	flags.IntVar(&cfg.maxConnections, "max-connections", cfg.maxConnections, "connections open at once")
	flags.IntVar(&cfg.maxInFlight, "max-in-flight", cfg.maxInFlight, "requests pipelined on one connection before it is read no further")
	flags.IntVar(&cfg.maxFrame, "max-frame", cfg.maxFrame, "bytes of a produce request")
	flags.IntVar(&cfg.maxBatch, "max-batch", cfg.maxBatch, "bytes of a record batch")
	flags.IntVar(&cfg.maxTopics, "max-topics", cfg.maxTopics, "topics")
	flags.IntVar(&cfg.maxPartitions, "max-partitions", cfg.maxPartitions, "partitions of all topics")
	flags.Int64Var(&cfg.retentionBytes, "retention-bytes", cfg.retentionBytes, "bytes kept per partition")
	flags.Int64Var(&cfg.maxLogSum, "log-bytes", cfg.maxLogSum, "bytes kept in all partitions of a broker together")
	flags.IntVar(&cfg.maxParked, "max-parked", cfg.maxParked, "requests of a kind parked at once at a broker")
	flags.DurationVar(&cfg.replicaLag, "replica-lag", cfg.replicaLag, "a follower that is behind for longer is not in sync")
	flags.DurationVar(&cfg.brokerSession, "broker-session", cfg.brokerSession, "a broker that is silent for longer is not alive")
	flags.DurationVar(&cfg.idleTimeout, "idle-timeout", cfg.idleTimeout, "close connections that ask nothing for this long")
	flags.BoolVar(&cfg.autoCreate, "auto-create", cfg.autoCreate, "create topics that clients name and allow to be created")
	partitions := flags.Int("partitions", int(cfg.defaultPartitions), "partitions of topics created without a number")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || *partitions < 1 || *partitions > cfg.maxPartitions || load.duration <= 0 || load.polls < 0 || load.rate < 0 {
		_, _ = fmt.Fprintln(stderr, "broker: arguments, or a number that makes no sense")
		flags.Usage()
		return 2
	}
	cfg.defaultPartitions = int32(*partitions)
	cfg.replication = int16(min(int(cfg.replication), max(cfg.brokers, 1)))
	cfg.minISR = min(cfg.minISR, int32(cfg.replication))

	if *serve {
		return runServe(cfg, os.Stdin, stdout, stderr)
	}
	return runTour(cfg, load, *asJSON, stdout, stderr)
}

// shutdownTimeout is how long parked requests and slow clients may hold up the
// end of the process.
const shutdownTimeout = 10 * time.Second

func runServe(cfg config, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := newCluster(cfg)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "broker: listening on %s\n", strings.Join(c.addrs(), ","))
	go c.obey(stdin, stdout) // ends with the process: a read of standard input cannot be called off
	<-ctx.Done()
	stop() // a second signal ends the process the usual way

	parked := 0
	for _, s := range c.running() {
		parked += s.fetches.Delayed()
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "broker: shutdown: %v\n", err)
		return 1
	}
	// kcat.sh reads the codecs: it shows that what a client was told to compress
	// arrived compressed.
	var batches [len(metrics{}.batches)]uint64
	var answers, panics uint64
	for _, s := range c.history() {
		for i := range batches {
			batches[i] += s.metrics.batches[i].Load()
		}
		answers += s.metrics.answers.Load()
		panics += s.metrics.panics.Load()
	}
	_, _ = fmt.Fprintf(stdout, "broker: batches none=%d gzip=%d snappy=%d lz4=%d zstd=%d\n", batches[0], batches[1], batches[2], batches[3], batches[4])
	_, _ = fmt.Fprintf(stdout, "broker: stopped: answered %d requests, %d fetches were parked, %d panics\n", answers, parked, panics)
	if panics > 0 {
		return 1
	}
	return 0
}
