package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// kfakeRival is franz-go's broker for tests, another broker in Go that keeps its
// records in memory.
var kfakeRival = rival{
	name:  "kfake",
	setup: "github.com/twmb/franz-go/pkg/kfake with one broker, in a process of its own",
	does:  []string{"W12"},
	bytes: pollBytes,
	run:   func(j Job) (Result, error) { return longPoll(j, kfakeVariable, "1", park) },
}

// kfakeVariable makes this binary run a kfake and nothing else, as kfake comes
// without a program.
const kfakeVariable = "LIMBO_BENCH_KFAKE"

func serveKfake() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Printf("kfake: listening on %s\n", cluster.ListenAddrs()[0])
	<-ctx.Done()
	return nil
}
