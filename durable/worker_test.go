package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// D2 and case 6: each timer runs once, never before its time by the engine's clock, even if that
// differs from this machine's by hours, and without the delay of a poll. No claim is sent before a
// timer is due.
func TestRunsWhenDue(t *testing.T) {
	for _, skew := range []time.Duration{0, 5*time.Hour + 300*time.Microsecond, -7 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, store.Limits{}, skew)
			j := &journal{}
			w := r.worker(j.handle, WorkerOptions{})
			want := map[string]time.Time{}
			for i := range 50 {
				key := fmt.Sprint("k", i)
				// No timer is due while one is scheduled: events would come late.
				timer := Timer{Key: key, Topic: "t", Body: []byte(key), After: time.Duration(i*130+5) * time.Millisecond}
				if i%2 == 1 {
					timer.At, timer.After = r.now().Add(timer.After), 0
				}
				want[key] = r.add(timer).Due.Time()
				pass(10 * time.Millisecond)
			}
			pass(10 * time.Second)
			require.Len(t, j.all(), 50)
			for i, f := range j.all() {
				due := want[f.Key]
				at := j.times()[i].Add(skew)
				require.Equal(t, due, f.Due)
				require.Equal(t, []byte(f.Key), f.Body)
				require.Equal(t, "t", f.Topic)
				require.Equal(t, 1, f.Attempt)
				require.NotZero(t, f.ID)
				require.NotZero(t, f.Fence)
				require.False(t, at.Before(due), f.Key)
				require.Less(t, at.Sub(due), 3*time.Millisecond, f.Key) // virtual time: only rounding
				delete(want, f.Key)
			}
			require.Empty(t, want)
			for range r.timers.List(context.Background(), Query{}) {
				t.Fatal("something still waits")
			}
			require.LessOrEqual(t, w.faults.count("claim"), 50)
			require.NoError(t, w.stop())
			st := w.Stats()
			require.Equal(t, WorkerStats{Claimed: 50, Done: 50, Preferred: st.Preferred, Members: 1, Late: st.Late}, st)
			require.EqualValues(t, 50, st.Late.Count)
		})
	}
}

// Idle workers do not poll for timers: ten idle workers send a heartbeat a second each, and check
// each shard once a second, all together, and once more every five seconds: less than 30 commands
// a second.
func TestIdleWorkersAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16, store.Limits{}, time.Hour)
		r.schedule("far", 24*time.Hour)
		var all []*member
		for range 10 {
			all = append(all, r.worker((&journal{}).handle, WorkerOptions{}))
		}
		pass(10 * time.Second)
		polled := 0
		for _, m := range all {
			m.faults.countAll()
			polled -= m.faults.polledShards()
		}
		pass(60 * time.Second)
		for _, m := range all {
			counts := m.faults.countAll()
			polls := counts["poll"] // calls for its own shards, and its turns
			delete(counts, "poll")
			require.Equal(t, map[string]int{"heartbeat": 60}, counts)
			if m.Stats().Preferred > 0 {
				polls -= 60
			}
			require.True(t, polls >= 0 && polls <= 60/5, polls)
			polled += m.faults.polledShards()
		}
		require.Equal(t, 60*16+60/5*16, polled)
		require.LessOrEqual(t, 60*len(all)+polled, 60*30)
	})
}

func TestWorkerOptionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		h := (&journal{}).handle
		for want, o := range map[string]WorkerOptions{
			"WorkerOptions.Name is 101 bytes long, must be at most 100":            {Name: strings.Repeat("n", 101)},
			"WorkerOptions.Concurrency is -1, must be 1 to 100000":                 {Concurrency: -1},
			"WorkerOptions.Lease is 99ms, must be 100ms to 24h0m0s":                {Lease: 99 * time.Millisecond},
			"WorkerOptions.MaxAttempts is -1, must be 1 or more":                   {MaxAttempts: -1},
			"WorkerOptions.Backoff is 1ns, must be 1ms to 720h0m0s":                {Backoff: 1},
			"WorkerOptions.MaxBackoff is 1s, must be Backoff, 2s, to 720h0m0s":     {Backoff: 2 * time.Second, MaxBackoff: time.Second},
			"WorkerOptions.MaxBackoff is 721h0m0s, must be Backoff, 1s, to 720h0m": {MaxBackoff: 721 * time.Hour},
			"WorkerOptions.Grace is 25h0m0s, must be at most 24h0m0s":              {Grace: 25 * time.Hour},
		} {
			_, err := r.timers.NewWorker(h, o)
			require.ErrorContains(t, err, want)
		}
		_, err := r.timers.NewWorker(nil, WorkerOptions{})
		require.EqualError(t, err, "durable: the handler is nil")
		a, err := r.timers.NewWorker(h, WorkerOptions{Name: "n", MaxBackoff: time.Millisecond})
		require.NoError(t, err)
		b, err := r.timers.NewWorker(h, WorkerOptions{Name: "n"})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(a.Name(), "n-"))
		require.NotEqual(t, a.Name(), b.Name())
		require.Equal(t, WorkerStats{}, a.Stats())

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, a.Run(ctx)) // at once
		require.EqualError(t, a.Run(ctx), "durable: Run was called twice")
		require.PanicsWithValue(t, "durable: the context is nil", func() { _ = b.Run(nil) })
	})
}

// Case 8 and case 15: failed timers are retried, with all their attempts counted, also by another
// worker, after a random backoff whose bound doubles.
func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{then: func(_ context.Context, f Fired) error {
			if f.Attempt < 5 {
				return fmt.Errorf("attempt %d", f.Attempt)
			}
			return nil
		}}
		o := WorkerOptions{Backoff: time.Second, MaxBackoff: 3 * time.Second}
		w := r.worker(j.handle, o)
		r.schedule("k", 0)
		for len(j.all()) < 2 {
			pass(time.Millisecond)
		}
		pass(10 * time.Millisecond)
		require.NoError(t, w.stop())
		n := len(j.all()) // 3 if the random backoff was less than 10 ms
		require.Equal(t, n, r.get("k").Attempts)
		require.Equal(t, fmt.Sprintf("attempt %d", n), r.get("k").LastError)
		r.worker(j.handle, o)
		pass(time.Minute)
		all := j.all()
		require.Len(t, all, 5)
		for i, f := range all {
			require.Equal(t, i+1, f.Attempt)
			require.Equal(t, all[0].ID, f.ID)
			if i == 0 {
				require.Empty(t, f.LastError)
				continue
			}
			require.Equal(t, fmt.Sprint("attempt ", i), f.LastError)
			require.Greater(t, f.Fence, all[i-1].Fence)
			if i != 2 { // except at the change of workers
				full := []time.Duration{0, 1, 2, 3, 3}[i] * time.Second
				require.LessOrEqual(t, j.times()[i].Sub(j.times()[i-1]), full+5*time.Millisecond)
			}
		}
		r.requireRemoved("k")
	})
}

func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var mu sync.Mutex // guards the next three
		var returns error
		var dead []Fired
		var deadOf []error
		locked := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		say := func(err error) { locked(func() { returns = err }) }
		j := &journal{then: func(context.Context, Fired) (err error) { locked(func() { err = returns }); return err }}
		w := r.worker(j.handle, WorkerOptions{MaxAttempts: 3, OnDead: func(f Fired, err error) {
			locked(func() { dead, deadOf = append(dead, f), append(deadOf, err) })
		}})
		ms := time.Millisecond

		// A wrapped RetryAfter sets when, exactly.
		say(fmt.Errorf("wrapped: %w", RetryAfter(7*time.Second, errBoom)))
		r.schedule("k", 0)
		pass(10 * ms)
		require.Len(t, j.all(), 1)
		info := r.get("k")
		require.Equal(t, "wrapped: boom", info.LastError)
		require.Equal(t, 7*time.Second, info.Due.Sub(store.MillisAt(j.times()[0]).Time()))
		require.Equal(t, 1, info.Attempts)

		// Snooze: the attempt does not count, and the last error stays.
		say(Snooze(3 * time.Second))
		pass(7 * time.Second)
		require.Len(t, j.all(), 2)
		require.Equal(t, 2, j.last().Attempt)
		info = r.get("k")
		require.Equal(t, 1, info.Attempts)
		require.Equal(t, "wrapped: boom", info.LastError)
		pass(3 * time.Second)
		require.Len(t, j.all(), 3)
		require.Equal(t, 2, j.last().Attempt)

		// RetryAfter in the last attempt: dead all the same.
		say(RetryAfter(-time.Second, nil))
		pass(4 * time.Second)
		require.Len(t, j.all(), 5)
		require.Equal(t, Dead, r.get("k").State)
		require.Equal(t, "durable: the handler asked for a retry", r.get("k").LastError)
		require.Equal(t, 3, r.get("k").Attempts)
		locked(func() {
			require.Len(t, dead, 1)
			require.Equal(t, 3, dead[0].Attempt)
		})

		// Discard: dead at once, with its body.
		say(Discard(errBoom))
		r.add(Timer{Key: "d", Body: []byte("body")})
		pass(10 * ms)
		info = r.get("d")
		require.Equal(t, Dead, info.State)
		require.Equal(t, "boom", info.LastError)
		require.Equal(t, []byte("body"), info.Body)
		locked(func() {
			require.Equal(t, []byte("body"), dead[1].Body)
			require.ErrorIs(t, deadOf[1], errBoom)
		})
		require.Equal(t, "durable: discarded by the handler", Discard(nil).Error())

		var listed []string
		for info, err := range r.timers.List(context.Background(), Query{State: Dead}) {
			require.NoError(t, err)
			listed = append(listed, info.Key)
		}
		require.Equal(t, []string{"k", "d"}, listed)
		say(nil)
		results, err := r.timers.Requeue(context.Background(), "d", "none", "k")
		require.NoError(t, err)
		require.Equal(t, []RequeueResult{Requeued, RequeueAbsent, Requeued}, results)
		pass(10 * ms)
		r.requireRemoved("k", "d")
		require.Equal(t, 1, j.last().Attempt)

		say(Discard(nil))
		r.schedule("p", 0)
		pass(10 * ms)
		n, err := r.timers.Purge(context.Background(), "p", "none")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		r.requireRemoved("p")
		require.NoError(t, w.stop())
		st := w.Stats()
		require.Equal(t, []uint64{2, 2, 2, 3}, []uint64{st.Done, st.Retried, st.Snoozed, st.DeadLettered})
	})
}

// D9: a panic, and a handler that ends its goroutine, are failures like others, and lead to dead
// letters. A panic of OnDead does no harm.
func TestPanicsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		h := func(_ context.Context, f Fired) error {
			switch f.Key {
			case "panics":
				panic("ouch")
			case "exits":
				runtime.Goexit()
			}
			return nil
		}
		w := r.worker(h, WorkerOptions{Concurrency: 1, MaxAttempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
			OnDead: func(Fired, error) { panic("again") }})
		r.schedule("panics", 0)
		r.schedule("exits", 0)
		pass(time.Second)
		r.schedule("fine", 0)
		pass(time.Second)
		r.requireRemoved("fine")
		require.Equal(t, "durable: the handler panicked: ouch", r.get("panics").LastError)
		require.Equal(t, "durable: the handler called runtime.Goexit", r.get("exits").LastError)
		require.Len(t, r.logs.with("a handler panicked", "key=panics", "panic=ouch", "worker_test.go"), 2)
		require.Len(t, r.logs.with("OnDead did not return", "again"), 2)
		require.NoError(t, w.stop())
		require.Equal(t, uint64(4), w.Stats().Panics)
	})
}

// D8: a timer that is scheduled while its key's timer runs is the successor: it waits for the end
// of the run, whatever the outcome, and never overlaps with it. So a handler that schedules its
// own key recurs.
func TestSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		running := 0
		j := &journal{}
		j.then = func(ctx context.Context, f Fired) error {
			running++
			defer func() { running-- }()
			require.Equal(t, 1, running)
			if len(j.all()) < 5 {
				got, err := r.timers.Schedule(ctx, Timer{Key: f.Key, After: 500 * time.Millisecond})
				require.NoError(t, err)
				require.Equal(t, Succeeds, got.Kind)
			}
			pass := time.Second // longer than until the successor is due
			time.Sleep(pass)
			if len(j.all()) == 2 {
				return errBoom // the old is not retried
			}
			return nil
		}
		r.worker(j.handle, WorkerOptions{})
		r.schedule("k", 0)
		pass(time.Minute)
		all := j.all()
		require.Len(t, all, 5)
		for i, f := range all {
			require.Equal(t, 1, f.Attempt)
			require.Empty(t, f.LastError)
			if i > 0 {
				require.NotEqual(t, all[i-1].ID, f.ID)
				require.Less(t, j.times()[i].Sub(j.times()[i-1]), time.Second+20*time.Millisecond)
			}
		}
		r.requireRemoved("k")
	})
}

// D4: Cancel of a running timer ends its ctx by the announcement, or at the next extension if that
// is lost; the timer is neither retried nor leased again. Case 14: the extension does not revive
// it.
func TestCancelWhileRunning(t *testing.T) {
	for _, dropEvents := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, 0)
			var cause error
			var ended time.Time
			j := &journal{then: func(ctx context.Context, _ Fired) error {
				<-ctx.Done()
				cause, ended = context.Cause(ctx), time.Now()
				time.Sleep(time.Minute) // longer than the lease
				return errBoom
			}}
			w := r.worker(j.handle, WorkerOptions{Lease: 10 * time.Second})
			r.schedule("k", 0)
			pass(time.Second)
			require.Equal(t, Leased, r.get("k").State)
			w.faults.dropEvents.Store(dropEvents)
			_, err := r.timers.Schedule(context.Background(), Timer{Key: "k"})
			require.NoError(t, err) // its successor is removed too
			got, err := r.timers.Cancel(context.Background(), "k")
			require.NoError(t, err)
			require.Equal(t, Running, got)
			cancelled := time.Now()
			pass(5 * time.Second)
			require.Equal(t, ErrCancelled, cause)
			if dropEvents {
				require.Equal(t, 4*time.Second, ended.Sub(cancelled).Truncate(10*time.Millisecond))
			} else {
				require.Equal(t, cancelled, ended)
			}
			pass(5 * time.Minute)
			require.Len(t, j.all(), 1)
			r.requireRemoved("k")
			require.NoError(t, w.stop())
			require.Equal(t, uint64(1), w.Stats().Cancelled)
			require.Zero(t, w.Stats().Done)
		})
	}
}

// D4: a timer that is cancelled while it waits, for its first or a later attempt, does not run
// (again).
func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{then: func(context.Context, Fired) error { return RetryAfter(time.Second, errBoom) }}
		r.worker(j.handle, WorkerOptions{})
		r.schedule("first", time.Second)
		r.schedule("again", 0)
		pass(500 * time.Millisecond)
		for _, key := range []string{"first", "again"} {
			got, err := r.timers.Cancel(context.Background(), key)
			require.NoError(t, err)
			require.Equal(t, Cancelled, got)
		}
		pass(time.Minute)
		require.Equal(t, []string{"again"}, j.keys())
	})
}

// At most two claims begin at a time, and the rest wait, so that they find more timers. On a
// distant engine they wait only for claimWait.
func TestClaimsAtOnce(t *testing.T) {
	const shards = 16
	for took, want := range map[time.Duration]struct {
		atOnce int
		last   time.Duration // when the last claim begins
	}{
		time.Millisecond:       {2, 7 * time.Millisecond},
		100 * time.Millisecond: {shards, 14 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, shards, store.Limits{}, 0)
			m := r.prepare(func(context.Context, Fired) error { return nil }, WorkerOptions{})
			var mu sync.Mutex
			var begun []time.Time
			underway, most := 0, 0
			m.faults.set(func(ctx context.Context, call string, _ int) error {
				if call != "claim" {
					return nil
				}
				mu.Lock()
				begun = append(begun, time.Now())
				underway++
				most = max(most, underway)
				mu.Unlock()
				err := late(ctx, took)
				mu.Lock()
				underway--
				mu.Unlock()
				return err
			}, nil)
			m.run()
			pass(time.Second) // it has polled all shards
			require.Empty(t, begun)
			at := r.now().Add(time.Second).Truncate(time.Millisecond)
			for n := range shards {
				i := 0
				for store.ShardOf(fmt.Sprint("k", i), shards) != n {
					i++
				}
				r.add(Timer{Key: fmt.Sprint("k", i), At: at})
			}
			pass(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, begun, shards)
			require.Equal(t, want.atOnce, most)
			require.Equal(t, want.last, begun[shards-1].Sub(begun[0]).Truncate(time.Millisecond))
		})
	}
}

// textError is an error with a pointer receiver, whose Error panics on a nil pointer.
type textError struct{ text string }

func (e *textError) Error() string { return e.text }

// funcError calls text in Error and unwrap in Unwrap.
type funcError struct {
	text   func() string
	unwrap func() error
}

func (e funcError) Error() string { return e.text() }
func (e funcError) Unwrap() error { return e.unwrap() }

// An error whose methods panic, or end the goroutine, is a failure like any other; and they may
// call the worker, because it holds no lock.
func TestErrorsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var w *member
		none := func() error { return nil }
		errs := map[string]error{
			"nil":     (*textError)(nil),
			"discard": Discard((*textError)(nil)),
			"unwrap":  funcError{func() string { return "text" }, func() error { panic("ouch") }},
			"goexit":  funcError{func() string { runtime.Goexit(); return "" }, none},
			"calls":   funcError{func() string { return fmt.Sprint("it runs: ", w.Stats().Running > 0) }, func() error { w.Stats(); return nil }},
		}
		j := &journal{then: func(_ context.Context, f Fired) error { return errs[f.Key] }}
		w = r.worker(j.handle, WorkerOptions{MaxAttempts: 2, Backoff: time.Millisecond})
		for key := range errs {
			r.schedule(key, 0)
		}
		pass(time.Minute)
		for key, want := range map[string]string{
			"nil":     "an error of type *durable.textError, whose Error did not return: runtime error: invalid memory address",
			"discard": "an error of type *durable.verdict, whose Error did not return: runtime error: invalid memory address",
			"unwrap":  "an error of type durable.funcError, whose Unwrap or As did not return: ouch",
			"goexit":  "an error of type durable.funcError, whose Error did not return",
			"calls":   "it runs: true",
		} {
			info := r.get(key)
			require.Equal(t, Dead, info.State, key)
			require.Contains(t, info.LastError, want)
			require.Equal(t, map[bool]int{true: 1, false: 2}[key == "discard"], info.Attempts, key)
		}
		st := w.Stats()
		require.Zero(t, st.Running+st.Ending)
		require.Zero(t, st.Panics, "no handler panicked")
		require.NoError(t, w.stop())
	})
}

// treeError wraps several errors.
type treeError struct{ below func() []error }

func (e treeError) Error() string   { return "tree" }
func (e treeError) Unwrap() []error { return e.below() }

// asError forwards As, as some error packages do.
type asError struct{ err error }

func (e asError) Error() string      { return "as" }
func (e asError) As(target any) bool { return errors.As(e.err, target) }

// An error that unwraps to itself, or without end, is a failure like any other.
func TestErrorsWithoutEnd(t *testing.T) {
	t.Parallel()
	text := func() string { return "text" }
	var self, deeper, tree error
	self = funcError{text, func() error { return self }}
	deeper = funcError{text, func() error { return fmt.Errorf("deeper: %w", deeper) }}
	tree = treeError{func() []error { return []error{tree, nil, tree} }}
	for name, err := range map[string]error{"self": self, "deeper": deeper, "tree": tree} {
		results := make(chan handlerResult, 1)
		go func() { classify(err, func(res handlerResult) { results <- res }) }()
		select {
		case res := <-results:
			require.True(t, res.failed, name)
			require.Equal(t, verdictRetry, res.verdict.kind, name)
			require.Equal(t, err.Error(), res.text, name)
		case <-time.After(time.Minute):
			t.Fatalf("%s: classify does not return", name)
		}
	}
}

// A verdict is found wherever errors.As would find it, and the first one counts.
func TestVerdictsAreFoundInWrappedErrors(t *testing.T) {
	deep := Snooze(time.Second)
	for range 200 {
		deep = fmt.Errorf("wrapped: %w", deep)
	}
	for name, err := range map[string]error{
		"deep":   deep,
		"tree":   treeError{func() []error { return []error{errBoom, nil, errors.Join(errBoom, Snooze(time.Second)), Discard(nil)} }},
		"method": fmt.Errorf("wrapped: %w", asError{Snooze(time.Second)}),
		"first":  RetryAfter(0, nil),
	} {
		want := verdict{kind: verdictSnooze, after: time.Second}
		if name == "first" {
			err = &verdict{kind: verdictSnooze, after: time.Second, err: err}
		}
		classify(err, func(res handlerResult) {
			res.verdict.err = nil
			require.Equal(t, want, res.verdict, name)
		})
	}
}

// OnDead runs at most Concurrency times at once, and is called for each dead letter.
func TestCallsOfOnDeadAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var now, most, calls int
		var mu sync.Mutex
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
			calls += max(n, 0)
		}
		w := r.worker(func(context.Context, Fired) error { return Discard(errBoom) }, WorkerOptions{Concurrency: 2, OnDead: func(Fired, error) {
			add(1)
			time.Sleep(time.Minute)
			add(-1)
		}})
		for i := range 9 {
			r.schedule(fmt.Sprint(i), 0)
		}
		pass(time.Hour)
		require.Equal(t, []int{2, 9}, []int{most, calls}, "at once, and in all")
		require.NoError(t, w.stop())
		require.EqualValues(t, 9, w.Stats().DeadLettered)
	})
}

// OnDead is called, and DeadLettered counted, only for dead letters: not for a cancelled timer, or one
// with a successor, whatever the handler has returned.
func TestOnDeadIsForDeadLetters(t *testing.T) {
	for name, c := range map[string]struct {
		during func(r *rig) // while the handler runs
		dead   bool
		want   WorkerStats
	}{
		"dead":      {func(*rig) {}, true, WorkerStats{DeadLettered: 1}},
		"successor": {func(r *rig) { r.schedule("k", time.Hour) }, false, WorkerStats{Done: 1}},
		"cancelled": {func(r *rig) { _, _ = r.timers.Cancel(context.Background(), "k") }, false, WorkerStats{Cancelled: 1}},
		"both": {func(r *rig) {
			_, _ = r.timers.Cancel(context.Background(), "k")
			r.schedule("k", time.Hour)
		}, false, WorkerStats{Cancelled: 1}},
	} {
		for _, cut := range []bool{false, true} { // the reply to the outcome is lost
			t.Run(fmt.Sprintf("%s, cut %v", name, cut), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, 1, store.Limits{}, 0)
					calls, cuts := 0, 0
					w := r.prepare(func(context.Context, Fired) error { time.Sleep(time.Second); return Discard(errBoom) },
						WorkerOptions{OnDead: func(Fired, error) { calls++ }})
					w.faults.dropEvents.Store(true) // the cancellation is not announced to it
					w.faults.set(func(_ context.Context, call string, _ int) error {
						if call == "get" && cuts == 1 { // and it cannot ask at once
							cuts++
							return errBoom
						}
						return nil
					}, func(_ context.Context, call string, _ int) error {
						if call == "end" && cut && cuts == 0 {
							cuts++
							return store.ErrUnsure
						}
						return nil
					})
					r.schedule("k", 0)
					w.run()
					pass(100 * time.Millisecond)
					c.during(r)
					pass(10 * time.Second)
					require.Equal(t, c.dead, calls == 1, "OnDead was called %d times", calls)
					require.Equal(t, c.dead, r.stats().Dead == 1)
					require.NoError(t, w.stop())
					got := w.Stats()
					if cut && c.want.Cancelled > 0 { // it cannot be distinguished from a completed one
						c.want.Cancelled, c.want.Done = 0, 1
					}
					require.Equal(t, c.want, WorkerStats{Done: got.Done, DeadLettered: got.DeadLettered, Cancelled: got.Cancelled, Lost: got.Lost})
				})
			})
		}
	}
}

// The reply to the outcomes of two runs is lost, and the engine does not tell at once whether one
// is a dead letter: the other one completes in the meantime.
func TestOutcomesWhoseReplyIsLostCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		w := r.prepare(func(_ context.Context, f Fired) error {
			time.Sleep(time.Second)
			if f.Key == "dead" {
				return Discard(errBoom)
			}
			return nil
		}, WorkerOptions{})
		gets := 0
		w.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "get" {
				if gets++; gets < 3 {
					return errBoom
				}
			}
			return nil
		}, func(_ context.Context, call string, _ int) error {
			if call == "end" && gets == 0 && w.faults.count("end") == 1 {
				return store.ErrUnsure
			}
			return nil
		})
		_, err := r.timers.ScheduleMany(context.Background(), []Timer{{Key: "dead"}, {Key: "done"}})
		require.NoError(t, err)
		w.run()
		pass(10 * time.Second)
		require.Equal(t, 3, gets)
		require.NoError(t, w.stop())
		st := w.Stats()
		require.Equal(t, []uint64{1, 1, 0}, []uint64{st.Done, st.DeadLettered, st.Lost})
		require.Zero(t, st.Ending)
		require.Len(t, w.faults.outcomes[0], 2)
		require.Len(t, w.faults.outcomes[len(w.faults.outcomes)-1], 1)
	})
}
