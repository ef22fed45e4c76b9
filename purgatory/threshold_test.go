package purgatory

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contract P13, and P1 to P12 for a Threshold.

// levels are the numbers that a Threshold under test reads.
type levels struct {
	mu sync.Mutex
	at map[int]int
}

func (l *levels) get(key int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[key]
}

func (l *levels) set(key, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[int]int{}
	}
	l.at[key] = n
}

// thresholdFixture is a Threshold and its numbers.
type thresholdFixture struct {
	*Threshold[int, int]
	levels
	t testing.TB
}

func newThresholdFixture(t testing.TB, o Options) *thresholdFixture {
	t.Helper()
	if o.OnPanic == nil {
		o.OnPanic = func(p Panic) { t.Errorf("unexpected panic: %v\n%s", p.Value, p.Stack) }
	}
	r := &thresholdFixture{t: t}
	th, err := NewThreshold(r.get, o)
	require.NoError(t, err)
	r.Threshold = th
	shutdownAtEnd(t, th)
	return r
}

// setAndAdvance sets a number and advances to it, as a user does.
func (r *thresholdFixture) setAndAdvance(key, n int) int {
	r.set(key, n)
	return r.Advance(key, n)
}

func (r *thresholdFixture) mustWatch(op Completion, timeout time.Duration, need Need, goals ...Goal[int, int]) Pending {
	r.t.Helper()
	h, err := r.TryCompleteElseWatch(context.Background(), op, timeout, need, goals...)
	require.NoError(r.t, err)
	require.NotNil(r.t, h)
	return h
}

// verify checks all invariants at rest, and compares the public statistics.
func (r *thresholdFixture) verify() (waiting int) {
	r.t.Helper()
	goals, keys := 0, 0
	met := map[*thresholdWaiter[int, int]]bool{}
	verifyTable(r.t, &r.table, func(e *entry[int, *tree[int, int]]) {
		keys++
		if e.hash != r.hash(e.key) || e.value.n == 0 {
			r.t.Errorf("P5: key %v stands under %x with %d goals", e.key, e.hash, e.value.n)
		}
		for _, g := range verifyTree(r.t, e.value) {
			goals++
			met[g.waiter] = true
			if g.key != e.key || g.hash != uint32(e.hash) || g.waiter.completion == nil || g.waiter.state.decided() {
				r.t.Errorf("goal %+v of an operation that has ended, or of another key", g)
			}
		}
	})
	for w := range met {
		left, goals := 0, w.goals()
		for i := range goals {
			if goals[i].tree != nil {
				left++
			}
		}
		if int(w.missing()) != int(w.need)-(len(goals)-left) {
			r.t.Errorf("an operation that needs %d of %d goals counts %d left, %d wait", w.need, len(goals), w.missing(), left)
		}
	}
	verifyTallies(r.t, &r.core, len(met), goals, keys)
	verifyDeferred(r.t, &r.deferred)
	return len(met)
}

// P13: exactly the reached goals complete, lowest number first, equal ones in order of arrival.
func TestAdvanceInOrder(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	var order []int
	for i, n := range []int{5, 3, 9, 3, 7, 5, 11, 3} {
		op := newOp(t)
		op.end = func(o Outcome) {
			require.Equal(t, Completed, o)
			order = append(order, n*10+i)
		}
		r.mustWatch(op, NoTimeout, All, Goal[int, int]{1, n})
	}
	require.Zero(t, r.setAndAdvance(1, 2))
	require.Empty(t, order)
	require.Equal(t, 5, r.setAndAdvance(1, 6))
	require.Equal(t, []int{31, 33, 37, 50, 55}, order)
	require.Equal(t, 3, r.verify())
	require.Zero(t, r.setAndAdvance(2, 100), "another key")
	require.Zero(t, r.setAndAdvance(1, 4), "down: nothing completes, nothing is undone")
	require.Equal(t, 3, r.setAndAdvance(1, 11))
	require.Equal(t, []int{31, 33, 37, 50, 55, 74, 92, 116}, order)
	require.Zero(t, r.verify())
}

// P13: goals that are already reached complete within the call; a number that went down in
// between does not count.
func TestReachedAlready(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	r.setAndAdvance(1, 10)
	for _, c := range []struct {
		need  Need
		goals []Goal[int, int]
		want  bool
	}{
		{All, []Goal[int, int]{{1, 10}}, true},
		{All, []Goal[int, int]{{1, 11}}, false},
		{All, []Goal[int, int]{{1, 9}, {2, 1}}, false},
		{All, []Goal[int, int]{{1, 9}, {2, 0}}, true},
		{Any, []Goal[int, int]{{1, 11}, {2, 1}}, false},
		{Any, []Goal[int, int]{{1, 11}, {2, 0}}, true},
		{Any, []Goal[int, int]{{1, 9}, {2, 1}}, true},
	} {
		op := newOp(t)
		h, err := r.TryCompleteElseWatch(context.Background(), op, NoTimeout, c.need, c.goals...)
		require.NoError(t, err)
		require.Equal(t, c.want, h.IsZero(), "%v", c)
		require.Equal(t, c.want, op.Outcome() == Completed)
		require.Equal(t, !c.want, h.Cancel(nil))
	}
	r.set(1, 3) // truncated
	op := newOp(t)
	h := r.mustWatch(op, NoTimeout, All, Goal[int, int]{1, 4})
	r.Advance(1, 3)
	require.Zero(t, op.Outcome())
	require.Equal(t, 1, r.setAndAdvance(1, 4))
	require.False(t, h.Cancel(nil))
	require.Zero(t, r.verify())
}

// P13: a goal that an Advance removes during the second reading is counted by that Advance, and
// not again by the reading that finds it reached.
func TestAdvanceDuringTheSecondReading(t *testing.T) {
	var r *Threshold[int, int]
	reads, number := 0, 0
	r, err := NewThreshold(func(key int) int {
		if reads++; reads == 3 { // the first goal's second reading, after the entry
			number = 1
			require.Zero(t, r.Advance(1, 1))
		}
		if key == 1 {
			return number
		}
		return 0
	}, Options{})
	require.NoError(t, err)
	op := newOp(t)
	h, err := r.TryCompleteElseWatch(t.Context(), op, NoTimeout, All, Goal[int, int]{1, 1}, Goal[int, int]{2, 1})
	require.NoError(t, err)
	require.True(t, h.Waiting(), "one goal of two is reached")
	require.Equal(t, 1, r.Watched())
	require.Equal(t, 1, r.Advance(2, 1))
	require.Equal(t, Completed, op.Outcome())
	require.NoError(t, r.Shutdown(t.Context()))
}

// P2, P13: an Advance between the entries of two goals is counted. The lock of the second key's
// bucket delays the registration in between.
func TestAdvanceBetweenEntries(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	bucket := func(key int) *bucket[int, *tree[int, int]] { return r.table.at(uint32(r.hash(key))) }
	first, last := 0, 1
	for bucket(last) == bucket(first) {
		last++
	}
	gate := bucket(last)
	gate.mu.Lock()
	registered := make(chan Pending)
	op := newOp(t)
	go func() {
		registered <- r.mustWatch(op, NoTimeout, All, Goal[int, int]{first, 1}, Goal[int, int]{last, 1})
	}()
	for r.Watching(first) == 0 {
		runtime.Gosched()
	}
	completed, keys := r.Advance(first, 1), r.Stats().Keys // the number itself goes down again
	gate.mu.Unlock()
	<-registered
	require.Zero(t, completed)
	require.Zero(t, keys, "the key is counted out before it is counted in")
	require.Equal(t, 1, r.verify())
	require.Equal(t, 1, r.Advance(last, 1))
	require.Equal(t, Completed, op.Outcome())
}

// P13: Advance counts an operation only if it has ended it: here the first to complete cancels
// the second, whose goal was removed from the tree in the same batch.
func TestAdvanceCountsItsOwn(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	first, second := newOp(t), newOp(t)
	var h Pending
	first.end = func(Outcome) { require.True(t, h.Cancel(nil)) }
	r.mustWatch(first, NoTimeout, All, Goal[int, int]{1, 1})
	h = r.mustWatch(second, NoTimeout, All, Goal[int, int]{1, 1})
	require.Equal(t, 1, r.setAndAdvance(1, 1))
	require.Equal(t, Completed, first.Outcome())
	require.Equal(t, Cancelled, second.Outcome())
	r.verify()
}

// P8: the maximum number of goals; the table of keys grows with them.
func TestManyGoals(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	goals := make([]Goal[int, int], maxKeys)
	for i := range goals {
		goals[i] = Goal[int, int]{i, 1}
	}
	op := newOp(t)
	h := r.mustWatch(op, NoTimeout, AtLeast(2), goals...)
	require.Equal(t, maxKeys, r.KeyCount())
	require.Greater(t, int(r.table.size.Load()), maxKeys/2, "the table has not grown")
	require.Zero(t, r.setAndAdvance(maxKeys-1, 1))
	require.Equal(t, 1, r.setAndAdvance(0, 1))
	require.Equal(t, Completed, op.Outcome())
	require.False(t, h.Waiting())
	require.Zero(t, r.verify())
}

// P13: a NaN that is read after the entry reaches no goal.
func TestNaNReachesNothing(t *testing.T) {
	reads := 0
	th, err := NewThreshold(func(int) float64 {
		if reads++; reads == 1 {
			return 0
		}
		return math.NaN()
	}, Options{})
	require.NoError(t, err)
	op := newOp(t)
	h, err := th.TryCompleteElseWatch(t.Context(), op, NoTimeout, All, Goal[int, float64]{1, 5})
	require.NoError(t, err)
	require.Equal(t, 2, reads)
	require.True(t, h.Waiting(), "completed by a NaN")
	require.Zero(t, th.Advance(1, math.NaN()))
	require.NoError(t, th.AdvanceLater(1))
	require.True(t, h.Waiting(), "completed by a NaN")
	require.Equal(t, 1, th.Advance(1, math.Inf(1)))
	require.Equal(t, Completed, op.Outcome())
	require.NoError(t, th.Shutdown(t.Context()))
}

// P13: goals on several keys, all or any; a reached goal stays reached.
func TestSeveralGoals(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	all, anyOne := newOp(t), newOp(t)
	r.mustWatch(all, NoTimeout, All, Goal[int, int]{1, 5}, Goal[int, int]{2, 5}, Goal[int, int]{3, 5}, Goal[int, int]{3, 7})
	r.mustWatch(anyOne, NoTimeout, Any, Goal[int, int]{1, 6}, Goal[int, int]{2, 6}, Goal[int, int]{3, 6})
	require.Equal(t, 7, r.Stats().Watched)
	require.Zero(t, r.setAndAdvance(1, 5))
	require.Equal(t, 6, r.Stats().Watched)
	require.Zero(t, r.setAndAdvance(1, 1)) // the goal stays reached
	require.Zero(t, r.setAndAdvance(3, 5))
	require.Equal(t, 1, r.setAndAdvance(2, 6))
	require.Equal(t, Completed, anyOne.Outcome())
	require.Zero(t, all.Outcome())
	require.Equal(t, 1, r.Stats().Watched)
	r.verify()
	require.Zero(t, r.setAndAdvance(3, 6))
	require.Equal(t, 1, r.setAndAdvance(3, 7))
	require.Equal(t, Completed, all.Outcome())
	require.Zero(t, r.verify())

	two := newOp(t)
	r.mustWatch(two, NoTimeout, AtLeast(2), Goal[int, int]{4, 1}, Goal[int, int]{5, 1}, Goal[int, int]{6, 1})
	require.Zero(t, r.setAndAdvance(6, 1))
	require.Equal(t, 1, r.verify())
	require.Equal(t, 1, r.setAndAdvance(4, 1))
	require.Equal(t, Completed, two.Outcome())
	require.Zero(t, r.verify())
	two = newOp(t)
	h, err := r.TryCompleteElseWatch(t.Context(), two, NoTimeout, AtLeast(2), Goal[int, int]{4, 1}, Goal[int, int]{5, 1}, Goal[int, int]{6, 1})
	require.NoError(t, err)
	require.Zero(t, h, "two are reached already")
}

// P8: bad input is an error that names it, and no operation waits.
func TestThresholdBadInput(t *testing.T) {
	require.PanicsWithValue(t, "purgatory: the function that reads a number is nil", func() { _, _ = NewThreshold[int, int](nil, Options{}) })
	_, err := NewThreshold(func(int) int { return 0 }, Options{Tick: -1})
	require.ErrorContains(t, err, "Options.Tick is -1")

	nan := math.NaN()
	r, err := NewThreshold(func(float64) float64 { return 0 }, Options{})
	require.NoError(t, err)
	defer r.Shutdown(t.Context())
	op := newOp(t)
	good := Goal[float64, float64]{1, 1}
	for want, call := range map[string]func() (Pending, error){
		"need is 0, must be All, Any or AtLeast 1 or more":  func() (Pending, error) { return r.TryCompleteElseWatch(context.Background(), op, 1, 0, good) },
		"need is -2, must be All, Any or AtLeast 1 or more": func() (Pending, error) { return r.TryCompleteElseWatch(context.Background(), op, 1, -2, good) },
		"need is -1, must be All, Any or AtLeast 1 or more": func() (Pending, error) { return r.TryCompleteElseWatch(context.Background(), op, 1, AtLeast(-1), good) },
		"need is at least 2, of 1 goals":                    func() (Pending, error) { return r.TryCompleteElseWatch(context.Background(), op, 1, AtLeast(2), good) },
		"the operation has 65536 goals, must have at most 65535": func() (Pending, error) {
			return r.TryCompleteElseWatch(context.Background(), op, 1, Any, make([]Goal[float64, float64], 65_536)...)
		},
		"the operation has no goals, must have at least 1": func() (Pending, error) { return r.TryCompleteElseWatch(context.Background(), op, 1, Any) },
		"goals[1].Key is NaN, must be equal to itself": func() (Pending, error) {
			return r.TryCompleteElseWatch(context.Background(), op, 1, Any, good, Goal[float64, float64]{nan, 1})
		},
		"goals[0].Number is NaN, must be equal to itself": func() (Pending, error) {
			return r.TryCompleteElseWatch(context.Background(), op, 1, All, Goal[float64, float64]{1, nan})
		},
	} {
		h, err := call()
		require.Zero(t, h)
		require.EqualError(t, err, "purgatory: "+want)
	}
	require.PanicsWithValue(t, "purgatory: the operation is nil", func() { _, _ = r.TryCompleteElseWatch(t.Context(), nil, 1, All, good) })
	require.PanicsWithValue(t, "purgatory: the context is nil", func() { _, _ = r.TryCompleteElseWatch(nil, op, 1, All, good) })
	require.ErrorContains(t, r.AdvanceLater(nan), "the key is NaN")
	h, err := r.TryCompleteElseWatch(context.Background(), op, NoTimeout, All, good)
	require.NoError(t, err)
	require.Zero(t, r.Advance(1, nan), "a NaN reaches nothing")
	require.Zero(t, r.Advance(nan, 5))
	require.Equal(t, 1, r.Stats().Watched)
	require.True(t, h.ForceComplete())
	require.Equal(t, []string{"all", "any", "at least 3"}, []string{All.String(), Any.String(), AtLeast(3).String()})
}

// P1, P5, P8, P9: every kind of end leaves nothing behind.
func TestThresholdOutcomes(t *testing.T) {
	goals := []Goal[int, int]{{1, 5}, {2, 5}}
	for name, c := range map[string]struct {
		want    Outcome
		timeout time.Duration
		end     func(r *thresholdFixture, h Pending, hangUp func())
	}{
		"advance": {Completed, time.Minute, func(r *thresholdFixture, _ Pending, _ func()) { r.setAndAdvance(1, 5); r.setAndAdvance(2, 5) }},
		"later": {Completed, time.Minute, func(r *thresholdFixture, _ Pending, _ func()) {
			r.set(1, 5)
			r.set(2, 9)
			r.AdvanceLater(1)
			r.AdvanceLater(2)
		}},
		"forced":       {Completed, time.Minute, func(_ *thresholdFixture, h Pending, _ func()) { h.ForceComplete() }},
		"timeout":      {Expired, time.Second, func(*thresholdFixture, Pending, func()) { time.Sleep(2 * time.Second) }},
		"at once":      {Expired, 0, func(*thresholdFixture, Pending, func()) {}},
		"half reached": {Expired, time.Second, func(r *thresholdFixture, _ Pending, _ func()) { r.setAndAdvance(1, 5); time.Sleep(2 * time.Second) }},
		"cancel":       {Cancelled, time.Minute, func(_ *thresholdFixture, h Pending, _ func()) { h.Cancel(nil) }},
		"key":          {Cancelled, time.Minute, func(r *thresholdFixture, _ Pending, _ func()) { require.Equal(r.t, 1, r.CancelForKey(2, nil)) }},
		"context":      {Cancelled, time.Minute, func(_ *thresholdFixture, _ Pending, hangUp func()) { hangUp() }},
		"shutdown":     {Closed, time.Minute, func(r *thresholdFixture, _ Pending, _ func()) { require.NoError(r.t, r.Shutdown(context.Background())) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newThresholdFixture(t, Options{MaxPending: 1})
				op := newOp(t)
				ctx, hangUp := context.WithCancel(t.Context())
				h, err := r.TryCompleteElseWatch(ctx, op, c.timeout, All, goals...)
				require.NoError(t, err)
				if c.timeout > 0 {
					_, err = r.TryCompleteElseWatch(context.Background(), newOp(t), time.Second, All, goals...)
					require.Equal(t, ErrFull, err, "P10")
				}
				c.end(r, h, hangUp)
				synctest.Wait()
				require.Equal(t, c.want, op.Outcome())
				require.False(t, h.Cancel(nil) || h.ForceComplete())
				require.Zero(t, r.verify())
				require.Zero(t, timers(&r.core))
				require.Zero(t, r.limit.Held())
				st := r.Stats()
				require.EqualValues(t, 1, st.Completed+st.Expired+st.Cancelled+st.Closed+st.Failed)
				hangUp()
				require.NoError(t, r.Shutdown(context.Background()))
				_, err = r.TryCompleteElseWatch(context.Background(), newOp(t), time.Second, All, goals...)
				require.Equal(t, ErrClosed, err, "P12")
				require.Equal(t, ErrClosed, r.AdvanceLater(1))
				require.Zero(t, r.Advance(1, 100))
			})
		})
	}
}

// P7: a number whose reading panics ends its own operation as Failed; a Complete that panics or
// ends its goroutine does not affect other operations.
func TestThresholdPanics(t *testing.T) {
	for at := range 2 { // before the operation waits, and after
		var reads int
		var panics []Panic
		th, err := NewThreshold(func(int) int {
			if reads++; reads == at+1 {
				panic("unreadable")
			}
			return 0
		}, Options{OnPanic: func(p Panic) { panics = append(panics, p) }})
		require.NoError(t, err)
		op := newOp(t)
		h, err := th.TryCompleteElseWatch(context.Background(), op, NoTimeout, All, Goal[int, int]{1, 1})
		require.NoError(t, err)
		require.False(t, h.Cancel(nil))
		require.Equal(t, Failed, op.Outcome())
		require.Len(t, panics, 1)
		require.Equal(t, "unreadable", panics[0].Value)
		require.EqualValues(t, 1, th.Stats().Failed)
		require.Zero(t, th.Stats().Watched)
		require.NoError(t, th.Shutdown(t.Context()))
	}
	for _, end := range []func(){func() { panic("complete") }, runtime.Goexit} {
		r := newThresholdFixture(t, Options{OnPanic: func(Panic) {}})
		var ops []*testOp
		for i := range 3 * sweepBatch {
			op := newOp(t)
			if i%7 == 3 {
				op.end = func(Outcome) { end() }
			}
			r.mustWatch(op, NoTimeout, All, Goal[int, int]{1, 1})
			ops = append(ops, op)
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			r.setAndAdvance(1, 1)
		}()
		<-done
		for _, op := range ops {
			require.Equal(t, Completed, op.Outcome())
		}
		require.Zero(t, r.verify())
	}
}

// P13: an operation that waits again as it completes does not prolong Advance, and is not
// completed by it.
func TestWaitAgainFromComplete(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	var rounds int
	var again func(Outcome)
	again = func(o Outcome) {
		if rounds++; rounds > 100 || o != Completed {
			return
		}
		r.set(1, 0) // lower again, so the operation has to wait
		op := newOp(t)
		op.end = again
		r.mustWatch(op, NoTimeout, All, Goal[int, int]{1, 1})
	}
	for range sweepBatch + 5 {
		op := newOp(t)
		op.end = again
		r.mustWatch(op, NoTimeout, All, Goal[int, int]{1, 1})
	}
	require.Equal(t, sweepBatch+5, r.Advance(1, 1))
	require.Equal(t, sweepBatch+5, r.verify())
}

// P2, P1: numbers rise while many goroutines add operations for the next ones: each operation
// ends exactly once.
func TestThresholdHammer(t *testing.T) {
	const goroutines, each, keys = 6, 3000, 3
	var nums [keys]atomic.Int64
	th, err := NewThreshold(func(k int) int64 { return nums[k].Load() }, Options{Tick: 20 * time.Microsecond, Workers: 3})
	require.NoError(t, err)
	var ending, raising sync.WaitGroup
	var accepted, ended atomic.Int64
	var by [outcomes]atomic.Int64
	for range goroutines {
		raising.Go(func() {
			rnd := rand.New(rand.NewPCG(rand.Uint64(), 2))
			for range each {
				op := newOp(t)
				op.end = func(o Outcome) {
					by[o].Add(1)
					ended.Add(1)
					ending.Done()
				}
				// One in eight waits for a number that is never reached, so that some expire
				// and some are cancelled however fast the numbers rise.
				ahead, beyond := int64(rnd.IntN(4)), rnd.IntN(8) == 0
				if beyond {
					ahead = 1 << 40
				}
				var goals []Goal[int, int64]
				for range 1 + rnd.IntN(3) {
					k := rnd.IntN(keys)
					goals = append(goals, Goal[int, int64]{k, nums[k].Load() + ahead})
				}
				timeout, cancel := NoTimeout, rnd.IntN(8) == 0
				if rnd.IntN(4) == 0 || beyond && !cancel {
					timeout = time.Duration(rnd.IntN(300)-20) * time.Microsecond
				}
				ending.Add(1)
				h, err := th.TryCompleteElseWatch(context.Background(), op, timeout, []Need{All, Any, AtLeast(len(goals))}[rnd.IntN(3)], goals...)
				if err != nil {
					t.Error(err)
				}
				accepted.Add(1)
				if cancel {
					h.Cancel(nil)
				}
				k := rnd.IntN(keys)
				if n := nums[k].Add(1); rnd.IntN(2) == 0 {
					th.Advance(k, n)
				} else if err := th.AdvanceLater(k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	raising.Wait()
	for k := range keys { // reach the remaining goals
		th.Advance(k, nums[k].Add(10))
	}
	ending.Wait()
	require.Equal(t, accepted.Load(), ended.Load())
	require.Positive(t, by[Completed].Load())
	require.Positive(t, by[Expired].Load())
	require.Positive(t, by[Cancelled].Load())
	st := th.Stats()
	require.EqualValues(t, ended.Load(), st.Completed+st.Expired+st.Cancelled)
	require.Zero(t, st.Watched+st.Pending+st.Keys)
	require.NoError(t, th.Shutdown(t.Context()))
}

// P13: random operations against an oracle that examines everything.
func TestThresholdModel(t *testing.T) {
	type waiting struct {
		op      *testOp
		h       Pending
		need    Need
		goals   []Goal[int, int]
		enough  int // of them
		reached []bool
		due     time.Duration
		seq     int
	}
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			r := newThresholdFixture(t, Options{Tick: time.Millisecond, Workers: 1}) // one worker: one order
			born := time.Now()
			var held []*waiting
			var order, want []int
			for seq := range 400 {
				now := time.Since(born)
				switch rnd.IntN(8) {
				case 0, 1, 2:
					w := &waiting{op: newOp(t), seq: seq, due: math.MaxInt64}
					for range 1 + rnd.IntN(4) {
						w.goals = append(w.goals, Goal[int, int]{rnd.IntN(4), rnd.IntN(20)})
					}
					w.need = AtLeast(1 + rnd.IntN(len(w.goals)))
					if w.enough = int(w.need); w.enough == len(w.goals) && rnd.IntN(2) == 0 {
						w.need = All
					}
					w.reached = make([]bool, len(w.goals))
					met := 0
					for i, g := range w.goals {
						if w.reached[i] = r.get(g.Key) >= g.Number; w.reached[i] {
							met++
						}
					}
					w.op.end = func(Outcome) { order = append(order, w.seq) }
					timeout := NoTimeout
					if rnd.IntN(2) == 0 {
						timeout = time.Duration(1+rnd.IntN(50)) * time.Millisecond
						w.due = now + timeout
					}
					var err error
					w.h, err = r.TryCompleteElseWatch(context.Background(), w.op, timeout, w.need, w.goals...)
					require.NoError(t, err)
					if met >= w.enough {
						require.Zero(t, w.h)
						want = append(want, w.seq)
					} else {
						require.NotNil(t, w.h)
						held = append(held, w)
					}
				case 3, 4, 5:
					key, n := rnd.IntN(4), rnd.IntN(22)
					type hit struct {
						w      *waiting
						number int
					}
					var hits []hit
					for _, w := range held {
						for i, g := range w.goals {
							if g.Key == key && g.Number <= n && !w.reached[i] {
								hits = append(hits, hit{w, g.Number})
								_ = i
							}
						}
					}
					slices.SortStableFunc(hits, func(a, b hit) int { return a.number - b.number })
					completed := 0
					for _, x := range hits {
						for i, g := range x.w.goals {
							if g.Key == key && g.Number == x.number && !x.w.reached[i] {
								x.w.reached[i] = true
								break
							}
						}
						met := 0
						for _, reached := range x.w.reached {
							if reached {
								met++
							}
						}
						if met >= x.w.enough && slices.Contains(held, x.w) {
							completed++
							want = append(want, x.w.seq)
							held = slices.DeleteFunc(held, func(w *waiting) bool { return w == x.w })
						}
					}
					require.Equal(t, completed, r.setAndAdvance(key, n))
				case 6:
					if len(held) > 0 {
						w := held[rnd.IntN(len(held))]
						require.True(t, w.h.Cancel(nil))
						want = append(want, w.seq)
						held = slices.DeleteFunc(held, func(o *waiting) bool { return o == w })
					}
				case 7:
					time.Sleep(time.Duration(rnd.IntN(8)) * time.Millisecond)
					synctest.Wait()
					now := time.Since(born)
					for _, w := range held {
						if w.due <= now {
							require.Equal(t, Expired, w.op.Outcome())
							want = append(want, w.seq)
						}
					}
					held = slices.DeleteFunc(held, func(w *waiting) bool { return w.due <= now })
					// Operations that expire in one tick do so in any order.
					slices.Sort(order)
					slices.Sort(want)
				}
				require.Equal(t, want, order)
				require.Equal(t, len(held), r.verify())
				for _, w := range held {
					require.Zero(t, w.op.Outcome())
				}
			}
		})
	}
}

// A reused record starts fresh: the first check completes an operation whose goals are already
// reached, and nothing waits.
func TestThresholdRecordIsReset(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	r.setAndAdvance(1, 1)
	checks, held := uint64(0), r.Threshold.Stats().Checks
	for range 100 {
		require.True(t, r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 2}, Goal[int, int]{2, 1}).Cancel(nil))
		checks += 2
		h, err := r.TryCompleteElseWatch(context.Background(), newOp(t), NoTimeout, All, Goal[int, int]{1, 1})
		require.NoError(t, err)
		require.Zero(t, h)
		checks++
		require.Equal(t, checks, r.Threshold.Stats().Checks-held)
	}
}

// A surplus goal, of an operation that needs fewer than it has, is not counted.
func TestThresholdReachedOnce(t *testing.T) {
	var w thresholdWaiter[int, int]
	w.need = 2
	gen := w.state.begin()
	w.setRemaining(gen)
	require.False(t, w.reached(gen+1))
	for i := range 5 {
		require.Equal(t, i == 1, w.reached(gen), "goal %d", i)
		require.EqualValues(t, max(0, 1-i), w.missing())
		require.True(t, countdown(w.remaining.Load()).belongsTo(gen))
	}
}

// A free record keeps memory for at most maxExtra goals.
func TestThresholdRecordStaysSmall(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	for _, n := range []int{2, maxExtra, maxExtra + 1, 10 * maxExtra} {
		h := r.mustWatch(newOp(t), NoTimeout, All, slices.Repeat([]Goal[int, int]{{1, 1}}, n)...)
		record := h.w.op.(*thresholdWaiter[int, int])
		require.Len(t, *record.many, n)
		require.True(t, h.Cancel(nil))
		require.Equal(t, n > maxExtra, record.many == nil, "%d goals", n)
	}
}

// P5: an ended operation is collected even while its handle is kept.
func TestThresholdKeepsNothing(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	var collectedOps atomic.Int32
	var handles []Pending
	func() {
		for range 100 {
			op := newOp(t)
			runtime.SetFinalizer(op, func(*testOp) { collectedOps.Add(1) })
			handles = append(handles, r.mustWatch(op, time.Hour, All, Goal[int, int]{1, 1}, Goal[int, int]{2, 2}))
		}
	}()
	r.setAndAdvance(1, 1)
	r.setAndAdvance(2, 2)
	for deadline := time.Now().Add(time.Minute); collectedOps.Load() < 100 && time.Now().Before(deadline); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	require.EqualValues(t, 100, collectedOps.Load())
	runtime.KeepAlive(handles)
}

// P13: an Advance allocates nothing, nor does an operation whose goals ascend, once records
// have been used.
func TestThresholdAllocations(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	for i := range 1000 {
		r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 1_000_000 + i})
	}
	n := 0
	op := discardOp{}
	for _, keys := range []int{1, 3, 40, maxExtra} {
		goals := make([]Goal[int, int], keys)
		allocatesNothing(t, func() {
			n++
			for i := range goals {
				goals[i] = Goal[int, int]{1, n}
			}
			if _, err := r.TryCompleteElseWatch(context.Background(), op, time.Minute, All, goals...); err != nil {
				t.Fatal(err)
			}
			if r.setAndAdvance(1, n) != 1 {
				t.Fatal(errors.New("not reached"))
			}
		})
	}
	full := newThresholdFixture(t, Options{MaxPending: 1})
	full.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 1})
	allocatesNothing(t, func() {
		if _, err := full.TryCompleteElseWatch(context.Background(), op, time.Minute, All, Goal[int, int]{1, 1}); err != ErrFull {
			t.Fatal(err)
		}
	})
}

type discardOp struct{}

func (discardOp) Complete(Outcome, error) {}
