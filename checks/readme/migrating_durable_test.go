package readme

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
)

// shop does the work of the timers.
type shop struct {
	cancelled []string
	reports   []time.Time
	done      func() // called when there are as many reports as expected
	expected  int
}

func (s *shop) cancelOrder(_ context.Context, order []byte) error {
	s.cancelled = append(s.cancelled, string(order))
	return nil
}

func (s *shop) report(_ context.Context, planned time.Time) error {
	if s.reports = append(s.reports, planned); len(s.reports) == s.expected {
		s.done()
	}
	return nil
}

func (s *shop) fromAsynq(ctx context.Context, engine durable.Store) error {
	// docs/migrating
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		return err
	}
	_, err = timers.Schedule(ctx, durable.Timer{
		Key: "order/17", Topic: "unpaid", Body: []byte("17"), After: 30 * time.Minute, IfAbsent: true,
	})
	if err != nil {
		return err
	}
	_, _, err = timers.PutSchedule(ctx, durable.Schedule{
		Key: "report", Topic: "report", Cron: "30 2 * * 1-5", Zone: "Europe/Berlin",
	})
	if err != nil {
		return err
	}
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		switch f.Topic {
		case "unpaid":
			return s.cancelOrder(ctx, f.Body)
		case "report":
			return s.report(ctx, f.Planned)
		}
		return durable.Discard(errors.New("unknown topic"))
	}, durable.WorkerOptions{MaxAttempts: 8})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
	// end
}

func (s *shop) fromRiver(ctx context.Context, timers *durable.Timers, commit func() error) error {
	// docs/migrating
	_, err := timers.Schedule(ctx, durable.Timer{
		Key: "order/17", Topic: "unpaid", Body: []byte("17"), After: 30 * time.Minute,
	})
	if err != nil {
		return err
	}
	if err := commit(); err != nil { // if it fails, the handler finds no order
		return err
	}
	// end
	// docs/migrating
	_, _, err = timers.PutSchedule(ctx, durable.Schedule{Key: "report", Topic: "report", Every: 15 * time.Minute})
	// end
	if err != nil {
		return err
	}
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		if f.Topic == "unpaid" {
			return s.cancelOrder(ctx, f.Body)
		}
		return s.report(ctx, f.Planned)
	}, durable.WorkerOptions{})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// A bubble begins on Saturday, 1 January 2000.
func TestFromAsynq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(memstore.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		s := &shop{done: cancel, expected: 1}
		require.NoError(t, s.fromAsynq(ctx, engine))
		require.Equal(t, []string{"17"}, s.cancelled)
		require.Equal(t, []time.Time{time.Date(2000, 1, 3, 1, 30, 0, 0, time.UTC)}, s.reports)
	})
}

func TestFromRiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(memstore.Options{})
		require.NoError(t, err)
		timers, err := durable.New(engine, durable.Options{})
		require.NoError(t, err)
		defer timers.Close()
		ctx, cancel := context.WithCancel(t.Context())
		s, begun := &shop{done: func() { time.AfterFunc(time.Minute, cancel) }, expected: 2}, time.Now()
		require.NoError(t, s.fromRiver(ctx, timers, func() error { return nil }))
		require.Equal(t, []string{"17"}, s.cancelled)
		require.Len(t, s.reports, 2)
		require.WithinDuration(t, begun.Add(15*time.Minute), s.reports[0], 0)
		require.WithinDuration(t, begun.Add(30*time.Minute), s.reports[1], 0)
	})
}
