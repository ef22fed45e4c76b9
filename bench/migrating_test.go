package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/collection"

	"github.com/seed-782fa212/limbo/internal/need"
)

// These are sides of docs/migrating.md; the test that compares them with the page is in
// checks/readme.

func idleConnectionsOfGozero(id uint64, conn net.Conn) error {
	// docs/migrating
	wheel, err := collection.NewTimingWheel(100*time.Millisecond, 300, func(_, c any) { c.(net.Conn).Close() })
	if err != nil {
		return err
	}
	if err := wheel.SetTimer(id, conn, 30*time.Second); err != nil {
		return err
	}
	if err := wheel.MoveTimer(id, 30*time.Second); err != nil {
		return err // collection.ErrClosed
	}
	if err := wheel.RemoveTimer(id); err != nil {
		return err
	}

	err = wheel.Drain(func(_, c any) { c.(net.Conn).Close() })
	wheel.Stop()
	// end
	return err
}

func TestMigratingFromGozero(t *testing.T) {
	ours, theirs := net.Pipe()
	require.NoError(t, idleConnectionsOfGozero(1, ours))
	require.NoError(t, ours.SetDeadline(time.Now()), "open: it was removed")
	require.NoError(t, ours.Close())
	require.NoError(t, theirs.Close())
}

func ordersOfAsynq(redis asynq.RedisConnOpt, berlin *time.Location, cancelOrder func(context.Context, []byte) error, report func(context.Context) error) (stop func(), err error) {
	// docs/migrating
	client := asynq.NewClient(redis)
	_, err = client.Enqueue(asynq.NewTask("unpaid", []byte("17")), asynq.TaskID("order/17"),
		asynq.ProcessIn(30*time.Minute), asynq.MaxRetry(7))
	if err != nil {
		return nil, err
	}
	scheduler := asynq.NewScheduler(redis, &asynq.SchedulerOpts{Location: berlin})
	if _, err := scheduler.Register("30 2 * * 1-5", asynq.NewTask("report", nil)); err != nil {
		return nil, err
	}
	if err := scheduler.Start(); err != nil { // in one process only
		return nil, err
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("unpaid", func(ctx context.Context, t *asynq.Task) error { return cancelOrder(ctx, t.Payload()) })
	mux.HandleFunc("report", func(ctx context.Context, _ *asynq.Task) error { return report(ctx) })
	server := asynq.NewServer(redis, asynq.Config{Concurrency: 64})
	err = server.Start(mux)
	// end
	return func() {
		server.Shutdown()
		scheduler.Shutdown()
		_ = client.Close()
	}, err
}

func TestMigratingFromAsynq(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "redis-server", "valkey-server")
	s, err := startRedis()
	require.NoError(t, err)
	defer func() { require.NoError(t, s.stop()) }()
	redis := asynq.RedisClientOpt{Addr: s.addr}
	stop, err := ordersOfAsynq(redis, time.UTC,
		func(context.Context, []byte) error { t.Error("early"); return nil }, func(context.Context) error { return nil })
	require.NoError(t, err)
	defer stop()
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	info, err := inspector.GetTaskInfo("default", "order/17")
	require.NoError(t, err)
	require.Equal(t, asynq.TaskStateScheduled, info.State)
	require.Equal(t, 7, info.MaxRetry)

	client := asynq.NewClient(redis)
	defer client.Close()
	_, err = client.Enqueue(asynq.NewTask("unpaid", nil), asynq.TaskID("order/17"))
	require.ErrorIs(t, err, asynq.ErrTaskIDConflict)
	info, err = client.Enqueue(asynq.NewTask("unpaid", nil), asynq.ProcessIn(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 25, info.MaxRetry)
	require.Equal(t, 30*time.Minute, info.Timeout)
}
