package readme

import (
	"context"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/stretchr/testify/require"
)

func orders(ctx context.Context, cancelOrder func(context.Context, string) error) error {
	// README
	timers, err := durable.Open("timers", durable.Options{}) // a folder
	if err != nil {
		return err
	}
	defer timers.Close()
	// When it returns, the timer is on the disk.
	_, err = timers.Schedule(ctx, durable.Timer{Key: "order/17", Topic: "unpaid", After: 30 * time.Minute})
	if err != nil {
		return err
	}
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		return cancelOrder(ctx, f.Key) // an error: it is tried again, after a pause
	}, durable.WorkerOptions{})
	if err != nil {
		return err
	}
	return worker.Run(ctx) // until ctx ends
	// end
}

func TestOrders(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	timers, err := durable.Open("timers", durable.Options{})
	require.NoError(t, err)
	_, err = timers.Schedule(ctx, durable.Timer{Key: "order/16", Topic: "unpaid"}) // due at once
	require.NoError(t, err)
	require.NoError(t, timers.Close())

	var cancelled string
	require.NoError(t, orders(ctx, func(_ context.Context, key string) error {
		cancelled = key
		cancel()
		return nil
	}))
	require.Equal(t, "order/16", cancelled, "it survived, and the one for later did not run")

	timers, err = durable.Open("timers", durable.Options{})
	require.NoError(t, err)
	defer timers.Close()
	info, err := timers.Get(t.Context(), "order/17")
	require.NoError(t, err)
	require.Equal(t, durable.Waiting, info.State)
	_, err = timers.Get(t.Context(), "order/16")
	require.ErrorIs(t, err, durable.ErrNotFound)
}
