package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// limboBrokerRival is the cluster of examples/broker.
var limboBrokerRival = rival{
	name: "limbo-broker",
	setup: "limbo's examples/broker/cluster with one broker, in a process of its own; " +
		"its limits of connections and partitions raised as far as needed",
	workloads: []string{"W12"},
	bytes:     pollBytes,
	run: func(j Job) (Result, error) {
		return longPoll(j, "broker", strconv.Itoa(j.Params["parked"]+64), park)
	},
}

// serveBroker runs a broker. limit is the most connections, partitions and parked fetches.
func serveBroker(ctx context.Context, limit string) error {
	n, err := strconv.Atoi(limit)
	if err != nil {
		return err
	}
	cfg := cluster.Config{Brokers: 1}
	cfg.Wire.MaxConnections, cfg.Meta.MaxPartitions, cfg.MaxParked = n, n, n
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	c, err := cluster.New(cfg)
	if err != nil {
		return err
	}
	fmt.Printf("broker: listening on %s\n", c.Addrs()[0])
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.Shutdown(end)
}
