package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

var keyedRival = rival{
	name:      "keyed",
	setup:     "limbo's keyed.Table[uint64, struct{}], zero Options: tick 500 µs; the handle is the key",
	workloads: []string{"W6"},
	bytes:     120,
	run:       inProcess(openKeyed),
}

// keyedTimers uses keys as handles. Each touch looks up its key, which is the purpose of the
// table.
type keyedTimers struct {
	table *keyed.Table[uint64, struct{}]
	keys  atomic.Uint64
}

func openKeyed(fire func(uint64)) (Timers[uint64], error) {
	table, err := keyed.New(func(id uint64, _ struct{}) { fire(id) }, timingwheel.Options{})
	return &keyedTimers{table: table}, err
}

func (t *keyedTimers) Start(d time.Duration) uint64 { return t.StartID(t.keys.Add(1), d) }

func (t *keyedTimers) StartID(id uint64, d time.Duration) uint64 {
	must(t.table.Set(id, struct{}{}, d))
	return id
}

func (t *keyedTimers) Stop(id uint64) bool {
	_, ok := t.table.Remove(id)
	return ok
}

func (t *keyedTimers) Reset(id uint64, d time.Duration) (uint64, bool) {
	return id, t.table.Touch(id, d) == nil
}

func (t *keyedTimers) Close() {
	_, err := t.table.Shutdown(context.Background(), timingwheel.Discard)
	must(err)
}
