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

// configVariable is set in the tour's processes, which run this binary again. Its value is the
// childConfig.
const configVariable = "LIMBO_TOUR_CONFIG"

// childConfig is the configuration of a process; one of its fields is set.
type childConfig struct {
	Scheduler *schedulerConfig
	Receiver  *receiverConfig
	Worker    *workerConfig
}

// isChild reports whether a tour started this process. Then main calls only runChild.
func isChild() bool { return os.Getenv(configVariable) != "" }

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
	var c childConfig
	err := json.Unmarshal([]byte(os.Getenv(configVariable)), &c)
	switch {
	case err != nil:
	case c.Scheduler != nil:
		err = runScheduler(ctx, *c.Scheduler)
	case c.Receiver != nil:
		err = runReceiver(ctx, *c.Receiver)
	case c.Worker != nil:
		err = runWorker(ctx, *c.Worker)
	default:
		err = fmt.Errorf("timerd: %s must not be set", configVariable)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
