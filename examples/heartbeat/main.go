// Command heartbeat is a TCP server that drops connections which have been silent for too long; it
// keeps their deadlines in a keyed.Table. Without flags it starts the server on loopback, connects
// a swarm of clients, some of which talk and some of which fall silent, and checks what happens to
// each; with -serve it serves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/internal/openfiles"
	"github.com/seed-782fa212/limbo/observe"
)

func main() { os.Exit(run(network.Machine, os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its environment passed in, for tests.
func run(on network.Network, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("heartbeat", flag.ContinueOnError)
	flags.SetOutput(stderr)
	serve := flags.Bool("serve", false, "serve until SIGINT or SIGTERM instead of driving a swarm")
	addr := flags.String("addr", "127.0.0.1:0", "host:port to listen on; port 0 picks a free one")
	remote := flags.Bool("allow-remote", false, "allow an address that is not loopback")
	idle := flags.Duration("idle", 3*time.Second, "how long a connection may be silent")
	limit := flags.Int("max-connections", 100_000, "connections open at once; further ones are closed at once")
	clients := flags.Int("clients", 10_000, "connections of the swarm")
	silent := flags.Float64("silent", 0.5, "share of them that falls silent, 0 to 1")
	duration := flags.Duration("duration", 10*time.Second, "how long the swarm talks; at least three times -idle")
	page := livepage.AddFlag(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	bad := func(format string, a ...any) int {
		fmt.Fprintf(stderr, "heartbeat: "+format+"\n", a...)
		return 2
	}
	switch {
	case flags.NArg() > 0:
		return bad("unexpected argument %q", flags.Arg(0))
	case *idle < 100*time.Millisecond || *idle > 24*time.Hour:
		return bad("-idle is %v, must be 100ms to 24h", *idle)
	case *limit < 1:
		return bad("-max-connections is %d, must be at least 1", *limit)
	case *clients < 1:
		return bad("-clients is %d, must be at least 1", *clients)
	case !*serve && *limit < *clients:
		return bad("-max-connections is %d, must be at least -clients, %d", *limit, *clients)
	case !(*silent >= 0 && *silent <= 1):
		return bad("-silent is %v, must be 0 to 1", *silent)
	case !*serve && *duration < 3**idle:
		return bad("-duration is %v, must be at least three times -idle, %v", *duration, 3**idle)
	}
	if host, _, err := net.SplitHostPort(*addr); err != nil {
		return bad("-addr is %q: %v", *addr, err)
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && !*remote {
		return bad("-addr is %q, which is not loopback; -allow-remote permits it", *addr)
	}

	if err := page.Check(); err != nil {
		return bad("%v", err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := func(err error) int {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
		return 1
	}
	// First, so that a port in use leaves no server to shut down.
	if err := page.Start(func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }); err != nil {
		return failed(err)
	}
	defer func() { _ = page.Stop() }()
	s, err := listen(on, *addr, *idle, *limit)
	if err != nil {
		return bad("%v", err)
	}
	unobserve, err := livepage.Add(page.Registry(), "idle connections", observe.Wheel(s.deadline))
	if err != nil {
		return failed(errors.Join(err, s.shutdown(context.Background())))
	}
	defer unobserve()
	fmt.Fprintf(stdout, "listening on %s, dropping what is silent for %v\n", s.addr(), *idle)
	ok := true
	if *serve {
		<-ctx.Done()
	} else {
		// Both ends of a connection are in this process.
		if most := (openfiles.Limit() - spareFiles) / 2; *clients > most {
			fmt.Fprintf(stdout, "the file limit of %d allows %d clients, not %d\n", openfiles.Limit(), max(most, 1), *clients)
			*clients = max(most, 1)
		}
		fmt.Fprintf(stdout, "%d clients talk for %v; %.0f %% of them fall silent at some moment, and wait to be dropped\n", *clients, *duration, 100**silent)
		ok = drive(ctx, s, *clients, *silent, *duration, stdout)
	}
	end, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.shutdown(end); err != nil {
		return failed(fmt.Errorf("shutdown: %w", err))
	}
	if !ok {
		return 1
	}
	return 0
}

// spareFiles is the number of files that the process opens in addition to connections.
const spareFiles = 64
