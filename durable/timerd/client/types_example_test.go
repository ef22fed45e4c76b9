package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// Request an occurrence of a schedule, pause it, and read its state.
func ExampleClient_GetSchedule() {
	url, _, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, err = c.PutSchedule(ctx, client.Schedule{
		Key: "report", Cron: "@daily",
		Overlap:  client.OverlapBufferOne, // the default skips
		Missed:   client.MissedAll,        // the default runs the latest
		Callback: client.Callback{URL: "https://example.com/report"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.TriggerSchedule(ctx, "report"); err != nil {
		fmt.Println(err)
		return
	}
	if err := c.PauseSchedule(ctx, "report", "the printer is broken"); err != nil {
		fmt.Println(err)
		return
	}
	info, err := c.GetSchedule(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.State == client.SchedulePaused, info.PauseNote)
	fmt.Println(info.Counts.Triggered, "triggered,", info.Counts.Created, "created")
	for _, o := range info.Last {
		fmt.Println(o.Requested, o.State == client.OccurrenceWaiting, o.Attempts)
	}
	// Output:
	// true the printer is broken
	// 1 triggered, 0 created
	// trigger true 0
}

// List schedules in small pages.
func ExampleClient_Schedules() {
	url, _, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, key := range []string{"a", "b", "c"} {
		_, err := c.PutSchedule(ctx, client.Schedule{Key: key, Every: time.Hour, Callback: client.Callback{URL: "https://example.com/" + key}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for info, err := range c.Schedules(ctx, client.ListOptions{PageSize: 2}) {
		fmt.Println(info.Key, info.Every, info.State, err)
	}
	// Output:
	// a 1h0m0s active <nil>
	// b 1h0m0s active <nil>
	// c 1h0m0s active <nil>
}

// An Error has the status, the code, and the field that is out of range.
func ExampleError() {
	url, _, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{Retries: client.NoRetries})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Schedule(context.Background(), client.Timer{Key: "order-7", Callback: client.Callback{URL: "ftp://example.com"}})
	var failed *client.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Status, failed.Code, failed.Field)
	}
	fmt.Println(errors.Is(err, client.ErrInvalid))
	// Output:
	// 400 invalid callback.url
	// true
}

// A worker reports how late its attempts began.
func ExampleWorkerInfo() {
	url, engine, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if _, err := engine.Heartbeat(ctx, store.Heartbeat{Worker: "host-4711-8f2e1c07", TTL: time.Minute}); err != nil { // as a worker does
		fmt.Println(err)
		return
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range workers {
		late := w.Late
		fmt.Println(w.Done, "done;", late.Count, "attempts, half of them at most", late.P50, "s late")
	}
	// Output: 0 done; 0 attempts, half of them at most 0 s late
}
