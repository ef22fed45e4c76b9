package observed

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/storetest"
	"github.com/seed-782fa212/limbo/observe"
)

// broken is a store that cannot be read.
type broken struct {
	store.Store
	err error
}

func (b *broken) Stats(ctx context.Context, shard int) (store.Stats, error) {
	if b.err != nil {
		return store.Stats{}, b.err
	}
	return b.Store.Stats(ctx, shard)
}

func TestFigures(t *testing.T) {
	s := &broken{Store: storetest.NewOracle(2, store.Limits{}, nil)}
	timers, err := durable.New(s, durable.Options{})
	require.NoError(t, err)
	defer timers.Close()
	done := make(chan struct{})
	worker, err := timers.NewWorker(func(context.Context, durable.Fired) error { close(done); return nil }, durable.WorkerOptions{})
	require.NoError(t, err)
	r := observe.New()
	_, err = r.Add("timers", Timers(timers))
	require.NoError(t, err)
	_, err = r.Add("worker", Worker(worker))
	require.NoError(t, err)
	figures := func(source int) map[string]any { return r.Snapshot().Sources[source].Figures }

	_, err = timers.Schedule(t.Context(), durable.Timer{Key: "due"})
	require.NoError(t, err)
	_, err = timers.Schedule(t.Context(), durable.Timer{Key: "later", After: 1 << 40})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"readable": 1., "waiting": 2., "overdue": 1., "leased": 0., "dead": 0., "dropped_total": 0., "invalid_figures": 0.}, figures(0))

	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(ctx) }()
	<-done
	stop()
	require.NoError(t, <-ran)
	require.Equal(t, map[string]any{"readable": 1., "waiting": 1., "overdue": 0., "leased": 0., "dead": 0., "dropped_total": 0., "invalid_figures": 0.}, figures(0))
	got := figures(1)
	require.Equal(t, 1., got["claimed_total"])
	require.Equal(t, map[string]any{
		"done": 1., "retried": 0., "snoozed": 0., "given_back": 0., "buried": 0.,
		"buried_lost": 0., "cancelled": 0., "lost": 0., "unwritten": 0.,
	}, got["ended_total"])

	s.err = errors.New("the disk has gone")
	require.Equal(t, map[string]any{"readable": 0., "invalid_figures": 0.}, figures(0))
}
