package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// limboBrokerRival is the cluster of examples/broker.
var limboBrokerRival = rival{
	name: "limbo-broker",
	setup: "limbo's examples/broker/cluster with one broker, in a process of its own; " +
		"its limits of connections and partitions raised as far as needed",
	does:  []string{"W12"},
	bytes: pollBytes,
	run: func(j Job) (Result, error) {
		return longPoll(j, brokerVariable, strconv.Itoa(j.Params["parked"]+64), park)
	},
}

// brokerVariable makes this binary run a broker and nothing else: its value is how many
// connections, partitions and parked fetches there can be.
const brokerVariable = "LIMBO_BENCH_BROKER"

func serveBroker(limit string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
