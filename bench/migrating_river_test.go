package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/riversharedmaintenance"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// This is River's side of docs/migrating.md. River needs Postgres, which no test here starts: so
// Start and InsertTx are compiled, and not run.

var errOrder = errors.New("no such order")

func cancelOrder(_ context.Context, order string) error {
	if order != "17" {
		return errOrder
	}
	return nil
}

type reportArgs struct{}

func (reportArgs) Kind() string { return "report" }

type reportWorker struct {
	river.WorkerDefaults[reportArgs]
}

func (reportWorker) Work(context.Context, *river.Job[reportArgs]) error { return nil }

// docs/migrating
type unpaidArgs struct {
	Order string `json:"order"`
}

func (unpaidArgs) Kind() string { return "unpaid" }

type unpaidWorker struct {
	river.WorkerDefaults[unpaidArgs]
}

func (*unpaidWorker) Work(ctx context.Context, job *river.Job[unpaidArgs]) error {
	return cancelOrder(ctx, job.Args.Order)
}

// end

func newRiver(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &unpaidWorker{})
	river.AddWorker(workers, &reportWorker{})
	// docs/migrating
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 64}},
		Workers: workers,
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(15*time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return reportArgs{}, nil }, nil)},
	})
	// end
	return client, err
}

func insertOrder(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx) error {
	// docs/migrating
	_, err := client.InsertTx(ctx, tx, unpaidArgs{Order: "17"}, &river.InsertOpts{
		ScheduledAt: time.Now().Add(30 * time.Minute),
	})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
	// end
}

var _ = insertOrder // needs a transaction

func TestMigratingFromRiver(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nothing") // connects when it is used
	require.NoError(t, err)
	defer pool.Close()
	_, err = newRiver(pool)
	require.NoError(t, err)

	worker := &unpaidWorker{}
	require.NoError(t, worker.Work(t.Context(), &river.Job[unpaidArgs]{Args: unpaidArgs{Order: "17"}}))
	require.ErrorIs(t, worker.Work(t.Context(), &river.Job[unpaidArgs]{Args: unpaidArgs{Order: "18"}}), errOrder)

	require.Equal(t, 25, river.MaxAttemptsDefault)
	require.Equal(t, time.Minute, river.JobTimeoutDefault)
	require.Equal(t, 24*time.Hour, riversharedmaintenance.CompletedJobRetentionPeriodDefault)
	fifth := new(river.DefaultClientRetryPolicy).NextRetry(&rivertype.JobRow{Errors: make([]rivertype.AttemptError, 4)})
	require.InEpsilon(t, 5*5*5*5, time.Until(fifth).Seconds(), 0.2, "it varies by 10 %%")
}
