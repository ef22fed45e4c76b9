package pebblestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
)

// D6: waiting timers survive a Close; timers that ran when the store was closed run again at once,
// each once; and only one process can have the folder.
func TestTimers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a failure would hang
	defer cancel()
	engine, err := pebblestore.Open(dir, pebblestore.Options{Shards: 4})
	require.NoError(t, err)
	timers, err := durable.New(engine, durable.Options{})
	require.NoError(t, err)
	_, err = pebblestore.Open(dir, pebblestore.Options{})
	require.Error(t, err)
	const n = 100
	for i := range n {
		_, err := timers.Schedule(ctx, durable.Timer{Key: fmt.Sprint(i), After: 10 * time.Millisecond})
		require.NoError(t, err)
	}
	running := make(chan string, n)
	free := make(chan struct{})
	w, err := timers.NewWorker(func(_ context.Context, f durable.Fired) error {
		running <- f.Key
		<-free
		return nil
	}, durable.WorkerOptions{Concurrency: 5, Grace: -1})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for range 5 {
		<-running
	}
	require.NoError(t, engine.Close()) // as a crash: the worker loses its store
	require.ErrorIs(t, <-done, durable.ErrClosed)
	close(free)

	_, err = pebblestore.Open(dir, pebblestore.Options{Shards: 5})
	require.ErrorIs(t, err, durable.ErrShards)
	engine, err = pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	timers, err = durable.New(engine, durable.Options{})
	require.NoError(t, err)
	again := make(chan durable.Fired, 2*n)
	w, err = timers.NewWorker(func(_ context.Context, f durable.Fired) error { again <- f; return nil }, durable.WorkerOptions{})
	require.NoError(t, err)
	stop, cancelRun := context.WithCancel(ctx)
	go func() { done <- w.Run(stop) }()
	attempts := map[int]int{}
	seen := map[string]bool{}
	for range n {
		f := <-again
		attempts[f.Attempt]++
		seen[f.Key] = true
	}
	require.Len(t, seen, n)
	require.Equal(t, map[int]int{1: n - 5, 2: 5}, attempts)
	cancelRun()
	require.NoError(t, <-done) // the ends are written
	st, err := timers.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Waiting+st.Leased+st.Dead)
	require.Equal(t, uint64(n), w.Stats().Done)
	require.NoError(t, engine.Close())
	_, err = timers.Get(ctx, "0")
	require.ErrorIs(t, err, durable.ErrClosed)
}
