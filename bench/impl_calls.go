package main

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/calls"
)

var callsRival = rival{
	name:      "calls",
	setup:     "limbo's calls.Table[uint64, uint64], zero Options",
	workloads: []string{"W14"},
	bytes:     400,
	run: func(j Job) (Result, error) {
		return inFlightOn(j, func(t callsTable) callsMethods { return t })
	},
}

var callsGroupRival = rival{
	name:      "calls-group",
	setup:     "limbo's calls.Group[uint64, uint64], one of a table with zero Options, as a connection has",
	workloads: []string{"W14"},
	bytes:     400,
	run: func(j Job) (Result, error) {
		return inFlightOn(j, func(t callsTable) callsMethods { return t.Group() })
	},
}

type callsTable = *calls.Table[uint64, uint64]

// callsMethods are the methods that a table and a group share.
type callsMethods interface {
	Do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error)
	Go(id uint64, timeout time.Duration, send func() error, done func(uint64, error)) error
	Reply(id, value uint64) bool
}

func inFlightOn(j Job, methods func(callsTable) callsMethods) (Result, error) {
	t, err := calls.New[uint64, uint64](calls.Options{})
	if err != nil {
		return Result{}, err
	}
	defer func() { must(t.Shutdown(context.Background())) }()
	return inFlight(j, inFlightCalls{methods(t)})
}

type inFlightCalls struct{ callsMethods }

func (c inFlightCalls) do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error) {
	return c.Do(ctx, id, timeout, send)
}

func (c inFlightCalls) reply(id, value uint64) bool { return c.Reply(id, value) }

func (c inFlightCalls) hold(id uint64, timeout time.Duration) error {
	return c.Go(id, timeout, func() error { return nil }, func(uint64, error) {})
}
