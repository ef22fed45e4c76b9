package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

// kfakeRival is franz-go's broker for tests, another broker in Go that keeps its
// records in memory.
var kfakeRival = rival{
	name:      "kfake",
	setup:     "github.com/twmb/franz-go/pkg/kfake with one broker, in a process of its own",
	workloads: []string{"W12"},
	bytes:     pollBytes,
	run:       func(j Job) (Result, error) { return longPoll(j, "kfake", "", park) },
}

func serveKfake(ctx context.Context, _ string) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Printf("kfake: listening on %s\n", cluster.ListenAddrs()[0])
	<-ctx.Done()
	return nil
}
