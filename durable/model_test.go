package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// TestModel schedules, replaces, moves and cancels at random, while workers join, leave, crash and
// pause, handlers fail, panic, snooze and outlast their leases, and calls to the engine fail
// before and after their effect. In the end each accepted timer has had its one possible outcome:
// D2, D4, D6, D7, D8, D9, D10.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := 60
	if os.Getenv("LIMBO_LONG") != "" {
		seeds = 3000
	}
	for seed := range seeds {
		// One in three is without crashes, pauses and lost replies: timers then run exactly once.
		// One in three only loses replies: attempts are then calls.
		calm, steady := seed%3 == 0, seed%3 < 2
		t.Run(fmt.Sprintf("seed=%d calm=%v steady=%v", seed, calm, steady), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, uint64(seed), calm, steady).play() })
		})
	}
}

const modelMaxAttempts = 4

type model struct {
	*rig
	calm    bool
	steady  bool
	rnd     *rand.Rand // of the test's goroutine
	workers []*member

	mu         sync.Mutex
	dice       *rand.Rand // of all other goroutines
	lifecycles map[string]*lifecycle
	broken     []string // violations that handlers saw
}

// lifecycle is that of one scheduled timer, whose name is its body.
type lifecycle struct {
	key       string
	due       time.Time // of its first attempt, by the engine's clock
	running   int
	attempts  int // the highest seen
	calls     int // except snoozed ones
	onDead    int
	done      int // handlers that returned nil
	failed    bool
	discarded bool
	last      error
	ids       map[ID]bool

	replaced  bool      // another was scheduled while it waited, ran or was dead
	cancelled time.Time // when Cancelled was returned
	marked    bool      // it was cancelled while it ran
}

func newModel(t *testing.T, seed uint64, calm, steady bool) *model {
	m := &model{
		calm: calm, steady: steady, lifecycles: make(map[string]*lifecycle),
		rnd:  rand.New(rand.NewPCG(seed, 1)),
		dice: rand.New(rand.NewPCG(seed, 2)),
	}
	m.rig = newRig(t, 1+m.rnd.IntN(4), store.Limits{}, time.Duration(m.rnd.IntN(10))*1234567*time.Microsecond)
	return m
}

// roll is for goroutines other than the test's.
func (m *model) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dice.IntN(n)
}

func (m *model) start() {
	lease := []time.Duration{time.Second, 5 * time.Second}[m.rnd.IntN(2)]
	w := m.prepare(m.handle, WorkerOptions{
		Concurrency: 1 + m.rnd.IntN(6), Lease: lease, MaxAttempts: modelMaxAttempts,
		Backoff: 50 * time.Millisecond, MaxBackoff: time.Second, Grace: 2 * time.Second,
		OnDead: func(f Fired, _ error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lifecycles[string(f.Body)].onDead++
		},
	})
	w.faults.set(func(ctx context.Context, _ string, _ int) error {
		switch m.roll(40) {
		case 0:
			return errBoom
		case 1:
			return late(ctx, time.Duration(m.roll(50))*time.Millisecond)
		}
		return nil
	}, func(ctx context.Context, call string, _ int) error {
		if m.calm || call == "subscribe" {
			return nil
		}
		switch m.roll(40) {
		case 0:
			return store.ErrUnsure
		case 1:
			return late(ctx, time.Duration(m.roll(300))*time.Millisecond)
		}
		return nil
	})
	w.run()
	m.workers = append(m.workers, w)
}

// handle checks the invariants that a handler can see, and behaves like handlers do.
func (m *model) handle(ctx context.Context, f Fired) error {
	name := string(f.Body)
	m.mu.Lock()
	l := m.lifecycles[name]
	for _, other := range m.lifecycles {
		if m.calm && other != l && other.key == l.key && other.running > 0 {
			m.broken = append(m.broken, name+" overlaps with another of its key") // D8
		}
	}
	l.running++
	l.calls++
	l.ids[f.ID] = true
	l.attempts = max(l.attempts, f.Attempt)
	switch {
	case l.key != f.Key || f.Key == "":
		m.broken = append(m.broken, name+" has another's body")
	case m.now().Before(l.due):
		m.broken = append(m.broken, name+" is early") // D2
	case !l.cancelled.IsZero():
		m.broken = append(m.broken, name+" runs though it was cancelled") // D4
	case m.calm && l.running > 1:
		m.broken = append(m.broken, name+" runs twice at once")
	case f.Attempt > modelMaxAttempts:
		m.broken = append(m.broken, name+" has too many attempts") // D9
	case len(l.ids) > 1:
		m.broken = append(m.broken, name+" has two IDs")
	}
	took := time.Duration(m.dice.IntN(400)) * time.Millisecond
	if m.dice.IntN(20) == 0 {
		took = 7 * time.Second // longer than a lease, and than the grace
	}
	what := m.dice.IntN(20)
	m.mu.Unlock()

	select {
	case <-time.After(took):
	case <-ctx.Done():
		if m.calm || what < 15 { // the others ignore it
			what = 0
		}
	}
	err := map[int]error{0: errBoom, 1: errBoom, 2: errBoom, 3: Snooze(300 * time.Millisecond),
		4: RetryAfter(20*time.Millisecond, errBoom), 5: Discard(errBoom)}[what]
	if ctx.Err() != nil && err == nil {
		time.Sleep(time.Second)
	}
	m.mu.Lock()
	l.running--
	l.last = err
	if what == 3 {
		l.calls--
	}
	switch {
	case what == 6:
		l.failed = true
	case what == 5:
		l.discarded = true
	case err != nil:
		l.failed = true
	default:
		l.done++
		if m.calm && l.done > 1 {
			m.broken = append(m.broken, name+" was done twice") // D7
		}
	}
	m.mu.Unlock()
	if what == 6 {
		panic("ouch")
	}
	return err
}

func (m *model) play() {
	for range 1 + m.rnd.IntN(3) {
		m.start()
	}
	ctx := context.Background()
	for i := range 150 {
		key := fmt.Sprint("key", m.rnd.IntN(40))
		switch n := m.rnd.IntN(40); {
		case n < 22:
			m.add(fmt.Sprintf("%s#%d", key, i), key)
		case n < 26:
			m.cancelKey(ctx, key)
		case n < 30:
			// A move to an earlier time would need to know which timer's due time it changes.
			_, err := m.timers.Reset(ctx, key, 10*time.Second)
			require.NoError(m.t, err)
		case n == 30 && len(m.workers) < 5:
			m.start()
		case n == 31 && len(m.workers) > 1:
			w := m.workers[0]
			m.workers = m.workers[1:]
			go func() { _ = w.stop() }()
		case n == 32 && len(m.workers) > 1 && !m.steady:
			w := m.workers[0]
			m.workers = m.workers[1:]
			go crash(w)
		case n == 33 && !m.steady:
			m.pause(m.workers[m.rnd.IntN(len(m.workers))])
		case n == 34 && !m.calm:
			w := m.workers[m.rnd.IntN(len(m.workers))]
			w.faults.dropEvents.Store(!w.faults.dropEvents.Load())
		default:
			pass(time.Duration(m.rnd.IntN(800)) * time.Millisecond)
		}
	}
	m.start() // at least one runs
	pass(5 * time.Minute)
	for _, w := range m.workers {
		_ = w.stop() // an error: handlers that were cut off
	}
	m.verify(ctx)
}

// pause stops a worker's calls for a while.
func (m *model) pause(w *member) {
	w.faults.mu.Lock()
	before, after := w.faults.before, w.faults.after
	w.faults.mu.Unlock()
	thawed := make(chan struct{})
	w.faults.set(func(context.Context, string, int) error { <-thawed; return nil }, nil)
	time.AfterFunc(time.Duration(1+m.rnd.IntN(8))*time.Second, func() {
		w.faults.set(before, after)
		close(thawed)
	})
}

// add schedules a timer under a key, and records which other timer that ends.
func (m *model) add(name, key string) {
	after := time.Duration(m.rnd.IntN(3000)-500) * time.Millisecond
	topic := fmt.Sprint("topic", m.rnd.IntN(5))
	m.mu.Lock()
	l := &lifecycle{key: key, due: m.now().Add(after), ids: make(map[ID]bool)}
	m.lifecycles[name] = l
	m.mu.Unlock()
	got, err := m.timers.Schedule(context.Background(), Timer{Key: key, Topic: topic, Body: []byte(name), After: after})
	require.NoError(m.t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if got.Kind == Created {
		return
	}
	for _, other := range m.lifecycles {
		if other != l && other.key == key {
			other.replaced = true
		}
	}
}

func (m *model) cancelKey(ctx context.Context, key string) {
	got, err := m.timers.Cancel(ctx, key)
	require.NoError(m.t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lifecycles {
		if l.key != key {
			continue
		}
		switch got {
		case Cancelled:
			// A run that has lost its lease may continue, but none begins.
			l.cancelled = time.Now()
		case Running:
			l.marked = true
		}
	}
}

// verify checks the final state.
func (m *model) verify(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(m.t, m.broken)
	st := m.stats()
	require.Zero(m.t, st.Waiting, "something waits for ever")
	require.Zero(m.t, st.Leased, "a lease is left for ever")
	dead := make(map[string]Info)
	for info, err := range m.timers.List(ctx, Query{State: Dead}) {
		require.NoError(m.t, err)
		info, err = m.timers.Get(ctx, info.Key)
		require.NoError(m.t, err)
		dead[string(info.Body)] = info
	}
	for name, l := range m.lifecycles {
		require.Zero(m.t, l.running)
		_, deadLettered := dead[name]
		if l.replaced || l.marked || !l.cancelled.IsZero() {
			continue // it may have run or not
		}
		require.True(m.t, deadLettered || l.done > 0 || !m.calm && l.attempts > 0, "%s is lost: %+v", name, l)
		if deadLettered && m.steady {
			require.True(m.t, l.discarded || l.calls >= modelMaxAttempts, "%s is dead after too few calls: %+v", name, l)
		}
		if l.onDead > 0 || m.calm {
			require.Equal(m.t, map[bool]int{true: 1}[deadLettered], l.onDead, "%s: OnDead: %+v", name, l)
		}
		switch {
		case m.calm && deadLettered:
			require.Zero(m.t, l.done, "%s was done and is dead: %+v", name, l) // D7
			require.True(m.t, l.discarded || l.attempts == modelMaxAttempts, "%s is dead too early: %+v", name, l)
		case deadLettered:
			// D9: an attempt whose claim was not answered counts, although no handler has seen
			// it.
			require.True(m.t, l.discarded || dead[name].Attempts == modelMaxAttempts, "%s is dead too early: %+v; %+v", name, l, dead[name])
			require.LessOrEqual(m.t, l.attempts, dead[name].Attempts, "%s: %+v; %+v", name, l, dead[name])
		case m.calm:
			require.Equal(m.t, 1, l.done, "%s: %+v", name, l)
		}
		if deadLettered && l.last != nil && !errors.Is(l.last, ErrLeaseLost) {
			require.NotEmpty(m.t, dead[name].LastError)
		}
	}
}
