package tour

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// incident is a fault of a process, at a fraction of the load's time.
type incident struct {
	at    float64
	whom  *process
	pause time.Duration // 0: SIGKILL instead
	down  time.Duration // time until the restart
}

// incidents returns the incidents of a tour. A pause is longer than the lease and the callbacks'
// timeout.
func (f *fleet) incidents() []incident {
	const pause = 2*lease + 500*time.Millisecond
	first, other := f.engines[0], f.engines[len(f.engines)/2]
	all := []incident{
		{at: 0.12, whom: f.runners[0], down: 500 * time.Millisecond},
		{at: 0.25, whom: first},
		{at: 0.36, whom: f.runners[1], pause: pause},
		{at: 0.68, whom: other, down: 300 * time.Millisecond},
		{at: 0.78, whom: f.runners[2], down: time.Second},
		{at: 0.86, whom: f.runners[0], pause: pause},
	}
	if first == f.front { // the engine is also the worker: its own leases expire
		return append(all, incident{at: 0.52, whom: first, pause: pause})
	}
	return append(all, incident{at: 0.55, whom: f.runners[1]})
}

// faults runs the incidents, and returns when all are done.
func (t *tour) faults(ctx context.Context, start time.Time) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, in := range t.fleet.incidents() {
		wg.Go(func() {
			at := start.Add(time.Duration(in.at * float64(t.Span)))
			select {
			case <-time.After(time.Until(at)):
			case <-ctx.Done():
				return
			}
			if err := t.happen(ctx, in); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = fmt.Errorf("timerd: %s: %w", in.whom.name, err)
			}
		})
	}
	wg.Wait()
	return first
}

func (t *tour) happen(ctx context.Context, in incident) error {
	if in.pause > 0 {
		t.show.say("%s is paused for %v", in.whom.name, in.pause)
		err := in.whom.pause(in.pause, ctx.Done())
		t.show.say("%s goes on", in.whom.name)
		return err
	}
	t.show.say("%s is killed", in.whom.name)
	if err := in.whom.kill(); err != nil {
		return err
	}
	time.Sleep(in.down)
	if err := in.whom.start(); err != nil {
		return err
	}
	t.show.say("%s is started again", in.whom.name)
	return nil
}
