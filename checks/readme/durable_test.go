package readme

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/checks/internal/servers"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/redisstore"
	"github.com/stretchr/testify/require"
)

func inFolder() (durable.Store, error) {
	// README
	engine, err := pebblestore.Open("timers", pebblestore.Options{}) // a folder, for one process
	// end
	return engine, err
}

func onRedis(ctx context.Context, address string) (durable.Store, error) {
	// README
	client, err := redisstore.NewClient(address) // redis://, rediss://, redis+cluster://
	if err != nil {
		return nil, err
	}
	return redisstore.Open(ctx, client, redisstore.Options{}) // for many processes
	// end
}

func orders(ctx context.Context, engine durable.Store, cancelOrder func(context.Context, string) error) error {
	// README
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		return err
	}
	defer timers.Close()
	// When it returns, the engine has stored the timer.
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

func reports(ctx context.Context, timers *durable.Timers, send func(context.Context, string, time.Time) error) error {
	// README
	_, _, err := timers.PutSchedule(ctx, durable.Schedule{
		Key: "report", Cron: "30 2 * * 1-5", Zone: "Europe/Berlin", // or Every: 15 * time.Minute
		Topic: "reports", Body: []byte("weekly"),
		Missed: durable.MissedAll, CatchUp: 12 * time.Hour, // the default runs the latest missed time
	})
	if err != nil {
		return err
	}
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		return send(ctx, f.Schedule, f.Planned) // f.ID is the same in all attempts of this time
	}, durable.WorkerOptions{})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
	// end
}

// A bubble begins on Saturday, 1 January 2000, so the first report is on Monday.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(memstore.Options{})
		require.NoError(t, err)
		timers, err := durable.New(engine, durable.Options{})
		require.NoError(t, err)
		defer timers.Close()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, reports(ctx, timers, func(_ context.Context, schedule string, planned time.Time) error {
			require.Equal(t, "report", schedule)
			require.Equal(t, time.Date(2000, 1, 3, 1, 30, 0, 0, time.UTC), planned)
			cancel()
			return nil
		}))
	})
}

func TestOrdersInAFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	testOrders(t, inFolder)
}

func TestOrdersOnRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	testOrders(t, func() (durable.Store, error) { return onRedis(t.Context(), "redis://"+server.Address) })
}

// In memory, in a bubble, a later timer runs without real waiting.
func TestOrdersInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(memstore.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		require.NoError(t, orders(ctx, engine, func(_ context.Context, key string) error {
			require.Equal(t, "order/17", key)
			cancel()
			return nil
		}))
		require.Equal(t, 30*time.Minute, time.Since(begun).Truncate(time.Second))
	})
}

// testOrders opens an engine three times: a process runs the timers that an earlier one has
// scheduled.
func testOrders(t *testing.T, open func() (durable.Store, error)) {
	ctx, cancel := context.WithCancel(t.Context())
	use := func(use func(durable.Store, *durable.Timers)) {
		engine, err := open()
		require.NoError(t, err)
		timers, err := durable.New(engine, durable.Options{})
		require.NoError(t, err)
		use(engine, timers)
		require.NoError(t, timers.Shutdown(context.Background()))
		require.NoError(t, engine.Close())
	}
	use(func(_ durable.Store, timers *durable.Timers) {
		_, err := timers.Schedule(ctx, durable.Timer{Key: "order/16", Topic: "unpaid"}) // due at once
		require.NoError(t, err)
	})
	var cancelled string
	use(func(engine durable.Store, _ *durable.Timers) {
		require.NoError(t, orders(ctx, engine, func(_ context.Context, key string) error {
			cancelled = key
			cancel()
			return nil
		}))
	})
	require.Equal(t, "order/16", cancelled, "it survived, and the one for later did not run")
	use(func(_ durable.Store, timers *durable.Timers) {
		info, err := timers.Get(t.Context(), "order/17")
		require.NoError(t, err)
		require.Equal(t, durable.Waiting, info.State)
		_, err = timers.Get(t.Context(), "order/16")
		require.ErrorIs(t, err, durable.ErrNotFound)
	})
}
