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
	"syscall"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/daemon"
)

func main() {
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
		fmt.Fprintln(stdout, versionLine())
		return 0
	}
	if f.health {
		if err := health(ctx, f.config); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	f.config.Logger = f.logger(stderr)
	slog.SetLogLoggerLevel(slog.LevelDebug) // net/http logs there what receivers send, without limit
	slog.SetDefault(f.config.Logger)
	slog.Info("timerd starts", "version", versionLine())
	if err := daemon.Run(ctx, f.config); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
