// Command broker speaks Kafka's protocol and keeps the fetches that wait for
// data in a limbo purgatory. Without flags it starts, drives itself with real
// clients for ten seconds and checks what came of it; with -serve it serves.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
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
	serve := flags.Bool("serve", false, "serve until SIGINT or SIGTERM instead of driving a load")
	asJSON := flags.Bool("json", false, "print the drive's summary as one JSON object on the last line of stdout; the rest goes to stderr")
	flags.DurationVar(&load.duration, "duration", load.duration, "how long the drive produces")
	flags.IntVar(&load.polls, "polls", load.polls, "long polls the drive keeps parked")
	flags.IntVar(&load.rate, "rate", load.rate, "records per second of the drive's steady load")
	flags.StringVar(&cfg.addr, "addr", cfg.addr, "host:port to listen on; port 0 picks a free one")
	flags.BoolVar(&cfg.allowRemote, "allow-remote", false, "allow an address that is not loopback (there is no authentication)")
	flags.IntVar(&cfg.maxConnections, "max-connections", cfg.maxConnections, "connections open at once")
	flags.IntVar(&cfg.maxInFlight, "max-in-flight", cfg.maxInFlight, "requests pipelined on one connection before it is read no further")
	flags.IntVar(&cfg.maxFrame, "max-frame", cfg.maxFrame, "bytes of a produce request")
	flags.IntVar(&cfg.maxBatch, "max-batch", cfg.maxBatch, "bytes of a record batch")
	flags.IntVar(&cfg.maxTopics, "max-topics", cfg.maxTopics, "topics")
	flags.IntVar(&cfg.maxPartitions, "max-partitions", cfg.maxPartitions, "partitions of all topics")
	flags.Int64Var(&cfg.retentionBytes, "retention-bytes", cfg.retentionBytes, "bytes kept per partition")
	flags.Int64Var(&cfg.maxLogSum, "log-bytes", cfg.maxLogSum, "bytes kept in all partitions together")
	flags.IntVar(&cfg.maxParked, "max-parked", cfg.maxParked, "fetches parked at once")
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

	if *serve {
		return runServe(cfg, stdout, stderr)
	}
	return runDrive(cfg, load, *asJSON, stdout, stderr)
}

// shutdownTimeout is how long parked requests and slow clients may hold up the
// end of the process.
const shutdownTimeout = 10 * time.Second

func runServe(cfg config, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := newServer(cfg)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "broker: listening on %s\n", s.addr())
	<-ctx.Done()
	stop() // a second signal ends the process the usual way

	parked := s.purgatory.Delayed()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "broker: shutdown: %v\n", err)
		return 1
	}
	// kcat.sh reads the codecs: it shows that what a client was told to compress
	// arrived compressed.
	m := &s.metrics
	_, _ = fmt.Fprintf(stdout, "broker: batches none=%d gzip=%d snappy=%d lz4=%d zstd=%d\n",
		m.batches[0].Load(), m.batches[1].Load(), m.batches[2].Load(), m.batches[3].Load(), m.batches[4].Load())
	_, _ = fmt.Fprintf(stdout, "broker: stopped: answered %d requests, %d fetches were parked, %d panics\n",
		m.answers.Load(), parked, m.panics.Load())
	if m.panics.Load() > 0 {
		return 1
	}
	return 0
}
