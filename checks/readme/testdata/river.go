// Package shop holds the side of docs/migrating.md that uses River. No test compiles it, because
// no module here requires River.
package shop

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

func cancelOrder(context.Context, string) error { return nil }

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

func open(ctx context.Context, pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
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
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

func insert(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx) error {
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
