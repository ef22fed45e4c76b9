package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// fault is a kill or a pause of a process, at a fraction of the load's time.
type fault struct {
	at           float64
	process      *process
	pause        time.Duration // 0: SIGKILL instead
	restartAfter time.Duration // time until the restart
}

// faults returns the faults of a tour. A pause is longer than the lease and the callbacks'
// timeout.
func (f *fleet) faults() []fault {
	const pause = 2*lease + 500*time.Millisecond
	first, other := f.engines[0], f.engines[len(f.engines)/2]
	all := []fault{
		{at: 0.12, process: f.workers[0], restartAfter: 500 * time.Millisecond},
		{at: 0.25, process: first},
		{at: 0.36, process: f.workers[1], pause: pause},
		{at: 0.68, process: other, restartAfter: 300 * time.Millisecond},
		{at: 0.78, process: f.workers[2], restartAfter: time.Second},
		{at: 0.86, process: f.workers[0], pause: pause},
	}
	if first == f.api { // the engine is also the worker: its own leases expire
		return append(all, fault{at: 0.52, process: first, pause: pause})
	}
	return append(all, fault{at: 0.55, process: f.workers[1]})
}

// injectFaults injects the faults, and returns when all are done.
func (t *tour) injectFaults(ctx context.Context, start time.Time) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, f := range t.fleet.faults() {
		wg.Go(func() {
			at := start.Add(time.Duration(f.at * float64(t.Span)))
			select {
			case <-time.After(time.Until(at)):
			case <-ctx.Done():
				return
			}
			if err := t.inject(ctx, f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = fmt.Errorf("timerd: %s: %w", f.process.name, err)
			}
		})
	}
	wg.Wait()
	return first
}

func (t *tour) inject(ctx context.Context, f fault) error {
	if f.pause > 0 {
		t.display.printf("%s is paused for %v", f.process.name, f.pause)
		err := f.process.pause(f.pause, ctx.Done())
		t.display.printf("%s is resumed", f.process.name)
		return err
	}
	t.display.printf("%s is killed", f.process.name)
	f.process.kill()
	time.Sleep(f.restartAfter)
	if err := f.process.start(); err != nil {
		return err
	}
	t.display.printf("%s is started again", f.process.name)
	return nil
}
