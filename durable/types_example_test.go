package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
)

// The engine bounds what it holds, and Options how long a call may take.
func ExampleNew() {
	var engine durable.Store
	engine, err := memstore.New(memstore.Options{Shards: 1, Limits: durable.Limits{MaxPending: 1}})
	if err != nil {
		panic(err)
	}
	timers, err := durable.New(engine, durable.Options{CallTimeout: 5 * time.Second, Logger: slog.Default()})
	if err != nil {
		panic(err)
	}
	defer timers.Close()
	for _, key := range []string{"order/1", "order/2"} {
		receipt, err := timers.Schedule(context.Background(), durable.Timer{Key: key, After: time.Hour})
		fmt.Println(receipt.Kind == durable.Created, errors.Is(err, durable.ErrFull))
	}
	// Output:
	// true false
	// false true
}

// A handler that remembers the IDs of completed timers does their work once, although a timer may
// run twice.
func ExampleFired() {
	done := map[durable.ID]bool{} // in the database that the work is done in
	handle := func(_ context.Context, f durable.Fired) error {
		if done[f.ID] {
			fmt.Println("attempt", f.Attempt, "had nothing left to do")
			return nil
		}
		done[f.ID] = true
		fmt.Println("attempt", f.Attempt, "did the work")
		return nil
	}
	f := durable.Fired{Key: "order/17", Attempt: 1}
	_ = handle(context.Background(), f)
	f.Attempt = 2 // its worker died before the engine knew
	_ = handle(context.Background(), f)
	// Output:
	// attempt 1 did the work
	// attempt 2 had nothing left to do
}

// Reset moves a waiting timer.
func ExampleTimers_Reset() {
	timers := newTimers()
	defer timers.Close()
	ctx := context.Background()

	_, _ = timers.Schedule(ctx, durable.Timer{Key: "reminder", After: time.Hour})
	for _, key := range []string{"reminder", "another"} {
		switch moved, err := timers.Reset(ctx, key, 2*time.Hour); moved {
		case durable.Moved:
			fmt.Println(key, "is due in two hours")
		case durable.MoveRunning:
			fmt.Println(key, "runs")
		case durable.MoveAbsent:
			fmt.Println(key, "has run, or never was")
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// reminder is due in two hours
	// another has run, or never was
}

// A timer whose attempts have all failed is a dead letter. It keeps its body and its last error,
// and can be requeued.
func ExampleTimers_Requeue() {
	timers := newTimers()
	defer timers.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	worker, err := timers.NewWorker(func(context.Context, durable.Fired) error {
		return errors.New("the bank is closed")
	}, durable.WorkerOptions{
		MaxAttempts: 1,
		OnDead:      func(f durable.Fired, err error) { fmt.Println(f.Key, "is dead:", err); stop() },
	})
	if err != nil {
		panic(err)
	}
	_, _ = timers.Schedule(ctx, durable.Timer{Key: "payment/17"})
	_ = worker.Run(ctx)
	fmt.Println(worker.Stats().Done, "done")

	ctx = context.Background()
	for info := range timers.List(ctx, durable.Query{State: durable.Dead}) {
		fmt.Println(info.Key, info.Attempts, info.LastError)
	}
	results, err := timers.Requeue(ctx, "payment/17", "payment/18")
	fmt.Println(results[0] == durable.Requeued, results[1] == durable.RequeueAbsent, err)
	// Output:
	// payment/17 is dead: the bank is closed
	// 0 done
	// payment/17 1 the bank is closed
	// true true <nil>
}

// List continues after a cursor.
func ExampleTimers_List() {
	timers := newTimers()
	defer timers.Close()
	ctx := context.Background()

	for hour := range 4 {
		due := time.Date(2099, 1, 1, hour, 0, 0, 0, time.UTC)
		_, _ = timers.Schedule(ctx, durable.Timer{Key: fmt.Sprint("order/", hour), At: due})
	}
	var page durable.Cursor // before all timers
	for range 2 {
		n := 0
		for info, err := range timers.List(ctx, durable.Query{After: page}) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(info.Key, info.State)
			page = info.Cursor()
			if n++; n == 2 {
				break
			}
		}
		last := page.At // in milliseconds, by the engine's clock
		fmt.Println("up to", last.Time().UTC().Format(time.DateTime))
	}
	// Output:
	// order/0 waiting
	// order/1 waiting
	// up to 2099-01-01 01:00:00
	// order/2 waiting
	// order/3 waiting
	// up to 2099-01-01 03:00:00
}

// CountDue counts waiting timers by due time, and Stats all of them by state.
func ExampleTimers_CountDue() {
	timers := newTimers()
	defer timers.Close()
	ctx := context.Background()

	day := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, hour := range []int{1, 2, 30} {
		at := day.Add(time.Duration(hour) * time.Hour)
		_, _ = timers.Schedule(ctx, durable.Timer{Key: fmt.Sprint("order/", hour), At: at})
	}
	due, err := timers.CountDue(ctx, []time.Time{day, day.AddDate(0, 0, 1), day.AddDate(0, 0, 2)})
	fmt.Println(due.Counts, err)
	stats, err := timers.Stats(ctx)
	fmt.Println(stats.Waiting, "waiting,", stats.Dead, "dead", err)
	// Output:
	// [2 1] <nil>
	// 3 waiting, 0 dead <nil>
}

// Workers lists the workers of all processes.
func ExampleTimers_Workers() {
	timers := newTimers()
	defer timers.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	worker, err := timers.NewWorker(func(ctx context.Context, _ durable.Fired) error {
		workers, err := timers.Workers(ctx)
		for _, w := range workers {
			fmt.Println("live:", w.Live)
		}
		stop()
		return err
	}, durable.WorkerOptions{Name: "shop"})
	if err != nil {
		panic(err)
	}
	_, _ = timers.Schedule(ctx, durable.Timer{Key: "order/17"})
	fmt.Println(worker.Run(ctx))
	stats := worker.Stats()
	fmt.Println(stats.Done, "done,", stats.Late.Count, "in the histogram of lateness")
	// Output:
	// live: true
	// <nil>
	// 1 done, 1 in the histogram of lateness
}

// A schedule is put at each start of a program. Its occurrences are timers; here one is requested.
func ExampleTimers_PutSchedule() {
	timers := newTimers()
	defer timers.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	report := durable.Schedule{
		Key: "report", Topic: "reports", Cron: "30 2 * * 1-5", Zone: "Europe/Berlin",
		Overlap: durable.OverlapBufferOne,                   // the default skips
		Missed:  durable.MissedAll, CatchUp: 12 * time.Hour, // the default runs the latest
	}
	for range 2 {
		result, info, err := timers.PutSchedule(ctx, report)
		fmt.Println(result, len(info.Next), err)
	}
	if _, err := timers.TriggerSchedule(ctx, "report"); err != nil {
		panic(err)
	}
	worker, err := timers.NewWorker(func(_ context.Context, f durable.Fired) error {
		fmt.Println("an occurrence of", f.Schedule)
		stop()
		return nil
	}, durable.WorkerOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(worker.Run(ctx))

	info, err := timers.GetSchedule(context.Background(), "report")
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Counts.Triggered, "triggered,", info.Counts.Done, "done")
	for _, o := range info.Last {
		fmt.Println(o.Requested, o.State, o.Attempts)
	}
	// Output:
	// created 10 <nil>
	// unchanged 10 <nil>
	// an occurrence of report
	// <nil>
	// 1 triggered, 1 done
	// trigger done 1
}

// Upcoming is a preview that needs no store; an invalid schedule is an error that names the field.
func ExampleSchedule_Upcoming() {
	report := durable.Schedule{Cron: "30 2 * * *", Zone: "Europe/Berlin"}
	next, err := report.Upcoming(time.Date(2030, 3, 30, 0, 0, 0, 0, time.UTC), 2)
	for _, at := range next { // on the 31st there is no 2:30
		fmt.Println(at.Format(time.RFC3339))
	}
	fmt.Println(err)

	_, err = durable.Schedule{Every: time.Millisecond}.Upcoming(time.Now(), 1)
	var wrong *durable.FieldError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Field, wrong.Value)
	}
	// Output:
	// 2030-03-30T02:30:00+01:00
	// 2030-03-31T03:00:00+02:00
	// <nil>
	// Every 1ms
}
