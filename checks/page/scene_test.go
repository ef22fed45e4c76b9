package page

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// scene is a busy registry: 10,000 fetches of a broker that complete and expire, sessions on a
// wheel with three levels, and calls.
type scene struct {
	registry *observe.Registry
	fetches  *purgatory.Purgatory[string]
	sessions *timingwheel.Wheel[int]
	calls    *calls.Table[uint64, string]
	quit     chan struct{}
	done     sync.WaitGroup
}

// sometimes is an operation that completes at one check of forty.
type sometimes struct{}

func (sometimes) TryComplete() bool                 { return rand.IntN(40) == 0 }
func (sometimes) Complete(purgatory.Outcome, error) {}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{registry: observe.New(), quit: make(chan struct{})}
	var err error
	s.fetches, err = purgatory.New[string](purgatory.Options{})
	require.NoError(t, err)
	s.sessions, err = timingwheel.New(func(int) {}, timingwheel.Options{Tick: 10 * time.Millisecond, WheelSize: 32})
	require.NoError(t, err)
	s.calls, err = calls.New[uint64, string](calls.Options{})
	require.NoError(t, err)
	jobs, err := scheduler.New(scheduler.Options{})
	require.NoError(t, err)
	_, err = jobs.Every(time.Second, func() {}, scheduler.JobOptions{})
	require.NoError(t, err)
	queue := delayqueue.New[int]()
	_, err = queue.Push(1, time.Now().Add(time.Hour))
	require.NoError(t, err)
	for _, x := range []struct {
		name   string
		source observe.Source
	}{
		{"fetches", observe.Purgatory(s.fetches, nil)}, {"to-brokers", observe.Calls(s.calls, nil)}, {"sessions", observe.Wheel(s.sessions)},
		{"cleaning", observe.Scheduler(jobs)}, {"retries", observe.Queue(queue)},
		{"build", observe.Custom("deploy", func() []observe.Metric {
			return []observe.Metric{{Name: "age_seconds", Value: 86400 * 3}, {Name: "restarts_total", Type: observe.Counter, Value: 2}}
		})},
	} {
		_, err := s.registry.Add(x.name, x.source)
		require.NoError(t, err)
	}
	s.work(s.addFetches)
	s.work(s.addCalls)
	s.work(s.addSessions)
	t.Cleanup(func() {
		close(s.quit)
		s.done.Wait()
		require.NoError(t, s.fetches.Shutdown(background))
		require.NoError(t, s.calls.Shutdown(background))
		_, err := s.sessions.Shutdown(background, timingwheel.Discard)
		require.NoError(t, err)
		_, err = jobs.Shutdown(background, timingwheel.Discard)
		require.NoError(t, err)
	})
	return s
}

// work calls a function about 50 times a second.
func (s *scene) work(f func(round int)) {
	s.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ; round++ {
			f(round)
			select {
			case <-tick.C:
			case <-s.quit:
				return
			}
		}
	})
}

func partition(skew float64) string {
	return fmt.Sprintf("orders-%d", int(rand.ExpFloat64()*skew))
}

func (s *scene) addFetches(int) {
	for s.fetches.Len() < 10_000 {
		keys := []string{partition(40)}
		for rand.IntN(3) == 0 {
			keys = append(keys, fmt.Sprintf("payments-%d", rand.IntN(50)))
		}
		timeout := 500*time.Millisecond + time.Duration(rand.ExpFloat64()*float64(12*time.Second))
		if _, err := s.fetches.TryCompleteElseWatch(background, sometimes{}, timeout, keys...); err != nil {
			return
		}
	}
	s.fetches.CheckAndComplete(partition(40))
}

func (s *scene) addCalls(round int) {
	for i := range uint64(4) {
		id := uint64(round)*4 + i
		_ = s.calls.Go(id, 3*time.Second, func() error { return nil }, func(string, error) {})
		if id >= 200 && id%7 != 0 {
			s.calls.Reply(id-200+uint64(rand.IntN(150)), "")
		}
	}
}

func (s *scene) addSessions(int) {
	for range 20 {
		spans := []time.Duration{600 * time.Millisecond, 18 * time.Second, 500 * time.Second}
		_, _ = s.sessions.Schedule(0, time.Duration(rand.Int64N(int64(spans[rand.IntN(3)]))))
	}
}
