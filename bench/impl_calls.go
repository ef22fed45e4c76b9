package main

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/calls"
)

var callsRival = rival{
	name:  "calls",
	setup: "limbo's calls.Table[uint64, uint64], zero Options",
	does:  []string{"W14"},
	bytes: 400,
	run: func(j Job) (Result, error) {
		t, err := calls.New[uint64, uint64](calls.Options{})
		if err != nil {
			return Result{}, err
		}
		r := tableOfCalls{t}
		defer func() { must(r.close()) }()
		return inFlight(j, r)
	},
}

type tableOfCalls struct{ *calls.Table[uint64, uint64] }

func (t tableOfCalls) do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error) {
	return t.Do(ctx, id, timeout, send)
}

func (t tableOfCalls) reply(id, value uint64) bool { return t.Reply(id, value) }

func (t tableOfCalls) hold(id uint64, timeout time.Duration) error {
	return t.Go(id, timeout, func() error { return nil }, func(uint64, error) {})
}

func (t tableOfCalls) close() error { return t.Shutdown(context.Background()) }
