// Command timerd keeps durable timers for programs in any language: a program schedules a callback
// over HTTP, and timerd calls it when it is due. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/daemon"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/tour"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/zones"
)

func main() {
	if tour.IsChild() {
		os.Exit(tour.Child())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the command without os.Exit: it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	f, err := parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if f.version {
		fmt.Fprintf(stdout, "timerd %s, %s, time zones %s\n", moduleVersion(), runtime.Version(), zones.Find())
		return 0
	}
	if f.tour {
		return tour.Run(ctx, tour.Options{
			Store: tour.Store(f.config.Store), JSON: f.json, Seed: f.seed, Span: f.span,
			Stdout: stdout, Stderr: stderr,
		})
	}
	f.config.Logger = f.logger(stderr)
	slog.SetLogLoggerLevel(slog.LevelDebug) // net/http logs there what receivers send, without limit
	slog.SetDefault(f.config.Logger)
	if err := daemon.Run(ctx, f.config); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// moduleVersion returns the version from which the program was built, as far as it is known.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
