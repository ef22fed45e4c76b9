package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
	"github.com/seed-782fa212/limbo/internal/programs"
)

const (
	schedulers   = 2
	startDelay   = 200 * time.Millisecond
	drainTimeout = 2 * time.Minute // time after the load until the store is empty
	maxRequeued  = 20              // dead letters that are requeued

	timersPerSchedule = 25
	minSchedules      = 200
)

// The kinds of stores.
const (
	onPebble  = "pebble"  // in a folder
	onRedis   = "redis"   // on a server behind a faulty proxy
	onCluster = "cluster" // on three masters, each behind such a proxy
)

// options configure a tour.
type options struct {
	Store     string        // onRedis and onCluster need a redis-server on PATH
	JSON      bool          // print a Summary
	Seed      uint64        // 0: drawn
	Timers    int           // scheduled, at least 1
	Schedules int           // set by runTour: one for 25 timers, at least 200
	Span      time.Duration // of the load
	Stdout    io.Writer
	Stderr    io.Writer
}

// runTour runs a tour and returns the exit status: 0, or 1 if the tour failed or found an error.
func runTour(ctx context.Context, o options) int {
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	o.Schedules = max(o.Timers/timersPerSchedule, minSchedules)
	s, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(o.Stderr, err)
	}
	print := json.MarshalIndent
	if o.JSON {
		print = func(v any, _, _ string) ([]byte, error) { return json.Marshal(v) }
	}
	b, _ := print(s, "", "  ")
	fmt.Fprintf(o.Stdout, "%s\n", b)
	for _, text := range s.wrong() {
		fmt.Fprintln(o.Stderr, "WRONG:", text)
	}
	if err != nil || !s.ok() {
		return 1
	}
	return 0
}

// tour is a running tour.
type tour struct {
	options
	dir     string
	fleet   fleet
	history *history
	api     apiClient
	display *display
	start   time.Time // of the load
}

func run(ctx context.Context, o options) (s Summary, err error) {
	if !programs.CanSuspend {
		return s, errors.New("timerd: the tour pauses processes by SIGSTOP, which this system does not have")
	}
	dir, err := os.MkdirTemp("", "timerd-tour-")
	if err != nil {
		return s, err
	}
	t := &tour{options: o, dir: dir}
	if err := t.setUp(); err != nil {
		return s, err
	}
	t.display = newDisplay(t)
	defer func() {
		t.display.close()
		t.history.print(t.Stderr)
	}()
	defer func() {
		t.fleet.stopAll()
		if err != nil || !s.ok() {
			t.display.printf("ledgers and logs are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	s, err = t.execute(ctx)
	s.WorkersKilled, s.EngineKilled = t.fleet.kills()
	n := &t.fleet.counts
	s.Cut, s.CameLate, s.CameTwice = n.cut.Load(), n.late.Load(), n.twice.Load()
	return s, err
}

// execute starts the processes, runs the schedulers, injects the faults, waits until no work is
// left, and checks.
func (t *tour) execute(ctx context.Context) (s Summary, err error) {
	if err := t.fleet.start(ctx); err != nil {
		return s, err
	}
	start := time.Now().Add(startDelay)
	if err := t.fleet.startSchedulers(t, start); err != nil {
		return s, err
	}
	t.start = start
	t.display.setStart(start)
	ctx, cancel := context.WithDeadlineCause(ctx, start.Add(t.Span+drainTimeout), errors.New("timerd: the tour has not come to its end in time"))
	defer cancel()

	faults := make(chan error, 1)
	go func() { faults <- t.injectFaults(ctx, start) }()
	done := make(chan error, 1)
	go func() { done <- t.fleet.waitSchedulers() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	var end ending
	if err = errors.Join(err, <-faults); err == nil {
		t.display.printf("all timers are scheduled")
		end, err = t.finish(ctx)
	}
	return t.summarize(end), err
}

// ending is the state of the store at the end.
type ending struct {
	dead  map[string]string // keys and last errors of the dead letters
	infos []client.ScheduleInfo
	left  int // entries
}

// finish waits until the store has no work left, requeues and purges dead letters, and deletes the
// schedules.
func (t *tour) finish(ctx context.Context) (end ending, err error) {
	if end.left, err = t.drain(ctx); err != nil {
		return end, err
	}
	if end.dead, err = t.api.dead(ctx); err != nil {
		return end, err
	}
	n := 0
	for key, cause := range end.dead { // they run and die again
		if !strings.Contains(cause, "404") || n == maxRequeued {
			continue
		}
		n++
		r, err := t.api.Requeue(ctx, key)
		if err == nil && r.Result != client.Requeued {
			err = fmt.Errorf("timerd: the requeue of %q is answered with %q", key, r.Result)
		}
		if err != nil {
			return end, err
		}
	}
	t.display.printf("%d dead letters, %d of them requeued", len(end.dead), n)
	if end.left, err = t.drain(ctx); err != nil {
		return end, err
	}
	if end.dead, err = t.api.dead(ctx); err != nil {
		return end, err
	}
	err = t.repeat(ctx, 0, func() (bool, error) { // the proxy still injects faults
		end.infos, err = t.api.schedules(ctx)
		return true, err
	})
	if err != nil {
		return end, err
	}
	if err := errors.Join(t.api.purge(ctx, slices.Collect(maps.Keys(end.dead))), t.api.remove(ctx, end.infos)); err != nil {
		return end, err
	}
	t.fleet.stopWorkers()
	end.left, err = t.fleet.countLeft()
	t.display.printf("the dead letters are purged, %d schedules deleted, the workers have ended, %d left behind", len(end.infos), end.left)
	return end, err
}

// drain waits until no timer waits or runs and all schedules have ended. It returns how many have
// not.
func (t *tour) drain(ctx context.Context) (busy int, err error) {
	err = t.repeat(ctx, 0, func() (bool, error) {
		busy, err = t.activeSchedules(ctx)
		return busy == 0, err
	})
	if err != nil {
		return max(busy, 1), err
	}
	// Wait, so that the counts include all earlier changes.
	err = t.repeat(ctx, 1100*time.Millisecond, func() (bool, error) {
		busy, err = t.api.busy(ctx)
		return busy == 0, err
	})
	if err != nil {
		return max(busy, 1), err
	}
	return 0, nil
}

// repeat waits and then calls f, again and again until it succeeds and is done.
func (t *tour) repeat(ctx context.Context, wait time.Duration, f func() (done bool, err error)) error {
	var last error
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
		done, err := f()
		if err == nil && done {
			return nil
		}
		last, wait = err, 200*time.Millisecond
	}
}

// activeSchedules returns how many schedules have not ended: a planned time is ahead, or has passed
// without an occurrence. A schedule shows as overdue only after a second.
func (t *tour) activeSchedules(ctx context.Context) (n int, err error) {
	if wait := time.Until(t.start.Add(t.Span + 1100*time.Millisecond)); wait > 0 {
		return t.Schedules, nil
	}
	infos, err := t.api.schedules(ctx)
	var active []string
	for _, i := range infos {
		if i.State != client.ScheduleEnded {
			active = append(active, i.Key+" is "+string(i.State))
		}
	}
	if err == nil && len(active) > 0 {
		err = fmt.Errorf("timerd: %d schedules have not ended: %s", len(active), strings.Join(active[:min(len(active), maxPrinted)], ", "))
	}
	return len(active), err
}

func (t *tour) summarize(end ending) Summary {
	if err := t.history.read(); err != nil {
		t.display.printf("%v", err)
		end.left++
	}
	keys := make(map[string]bool, len(end.dead))
	for key := range end.dead {
		keys[key] = true
	}
	s := t.history.check(keys, end.infos)
	s.LeftBehind = end.left
	return s
}

func (t *tour) path(name string) string { return filepath.Join(t.dir, name) }
