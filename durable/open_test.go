package durable

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// On the embedded engine: what waits survives a Close, what ran when the store was
// closed runs again at once (D6), each once, and the folder is one process's.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // it hangs otherwise
	defer cancel()
	timers, err := Open(dir, Options{Shards: 4})
	require.NoError(t, err)
	_, err = Open(dir, Options{})
	require.Error(t, err)
	const n = 100
	for i := range n {
		_, err := timers.Schedule(ctx, Timer{Key: fmt.Sprint(i), After: 10 * time.Millisecond})
		require.NoError(t, err)
	}
	running := make(chan string, n)
	free := make(chan struct{})
	w, err := timers.NewWorker(func(_ context.Context, f Fired) error {
		running <- f.Key
		<-free
		return nil
	}, WorkerOptions{Concurrency: 5, Grace: -1})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for range 5 {
		<-running
	}
	require.NoError(t, timers.Close()) // as a crash: the worker loses its store
	require.ErrorIs(t, <-done, ErrClosed)
	close(free)

	_, err = Open(dir, Options{Shards: 5})
	require.ErrorIs(t, err, ErrShards)
	_, err = Open(dir, Options{CallTimeout: -1})
	require.ErrorContains(t, err, "Options.CallTimeout is -1ns")
	timers, err = Open(dir, Options{})
	require.NoError(t, err)
	again := make(chan Fired, 2*n)
	w, err = timers.NewWorker(func(_ context.Context, f Fired) error { again <- f; return nil }, WorkerOptions{})
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
	require.NoError(t, timers.Close())
	_, err = timers.Get(ctx, "0")
	require.ErrorIs(t, err, ErrClosed)
}
