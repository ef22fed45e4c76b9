package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The tour runs this binary again for its processes, with role and configuration in the
// environment.
const (
	roleVariable   = "LIMBO_TOUR_ROLE"
	configVariable = "LIMBO_TOUR_CONFIG"

	roleScheduler = "scheduler"
	roleReceiver  = "receiver"
	roleWorker    = "worker"
)

// isChild reports whether a tour started this process. Then main calls only runChild.
func isChild() bool { return os.Getenv(roleVariable) != "" }

// runChild runs a process of the tour and returns its exit status. It ends with its parent, because
// the parent's end closes standard input.
func runChild() int {
	signal.Ignore(os.Interrupt) // the parent ends its children
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	config := []byte(os.Getenv(configVariable))
	var err error
	switch role := os.Getenv(roleVariable); role {
	case roleScheduler:
		err = childOf(ctx, config, runScheduler)
	case roleReceiver:
		err = childOf(ctx, config, runReceiver)
	case roleWorker:
		err = childOf(ctx, config, runWorker)
	default:
		err = fmt.Errorf("timerd: %s is %q, must not be set", roleVariable, role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childOf[C any](ctx context.Context, config []byte, f func(context.Context, C) error) error {
	var c C
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	return f(ctx, c)
}
