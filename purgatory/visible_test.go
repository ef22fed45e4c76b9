package purgatory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/stretchr/testify/require"
)

// P16: pending operations are listed with their keys, age and deadline, and counted by key.
func TestP16All(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		for range p.All() {
			t.Fatal("nothing waits")
		}
		type want struct {
			keys     []int
			came     time.Time
			deadline time.Time
		}
		wants := map[Pending]want{}
		perKey := map[int]int{}
		for i := range 300 {
			keys := rand.Perm(40)[:1+rand.IntN(6)]
			if i%10 == 0 {
				keys = append(keys, keys[0]) // given twice
			}
			timeout := NoTimeout
			w := want{keys: keys, came: time.Now()}
			if i%2 == 0 {
				timeout = time.Duration(1+i) * time.Minute
				w.deadline = time.Now().Add(timeout)
			}
			h := mustWatch(t, p, newOp(t), timeout, keys...)
			if i%10 == 0 {
				w.keys = keys[:len(keys)-1]
			}
			for _, k := range w.keys {
				perKey[k]++
			}
			wants[h] = w
			time.Sleep(time.Millisecond)
		}
		check := func() {
			t.Helper()
			seen := map[Pending]bool{}
			for x := range p.All() {
				w, ok := wants[x.Pending]
				require.True(t, ok && !seen[x.Pending])
				seen[x.Pending] = true
				require.Equal(t, w.keys, x.Keys())
				require.Equal(t, time.Since(w.came), x.Age)
				require.True(t, w.deadline.Equal(x.Deadline), "%v, not %v", x.Deadline, w.deadline)
				at, ok := x.Pending.Deadline()
				require.Equal(t, !w.deadline.IsZero(), ok)
				require.True(t, w.deadline.Equal(at))
				require.True(t, x.Pending.Waiting())
			}
			require.Len(t, seen, len(wants))
			for k := range 40 {
				require.Equal(t, perKey[k], p.Watching(k))
			}
		}
		check()
		for _, h := range slices.Collect(maps.Keys(wants))[:200] {
			require.True(t, h.Cancel(nil))
			_, ok := h.Deadline()
			require.False(t, ok || h.Waiting())
			for _, k := range wants[h].keys {
				perKey[k]--
			}
			delete(wants, h)
		}
		time.Sleep(minPostponed)
		check()

		// The body may use the purgatory, and leave the loop early, in any way.
		n := 0
		for x := range p.All() {
			keys := x.Keys()
			require.True(t, x.Pending.Cancel(nil))
			require.Empty(t, x.Keys(), "it has ended")
			require.NotEmpty(t, keys)
			mustWatch(t, p, newOp(t), NoTimeout, 1000+n).ForceComplete()
			if n++; n == 50 {
				break
			}
		}
		require.Equal(t, 50, p.Len())
		require.Panics(t, func() {
			for range p.All() {
				panic("body")
			}
		})
		verify(t, p)
		mustShutdown(t, p)
	})
}

// P16: Oldest against All, while operations with up to three keys begin and end.
func TestP16Oldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 0))
		p := open[int](t, Options{})
		for round := range 900 {
			time.Sleep(time.Millisecond)
			keys := []int{rng.IntN(10), rng.IntN(10), rng.IntN(4)}[:1+rng.IntN(3)]
			if round >= 450 {
				keys = []int{rng.IntN(4)} // so that some lists grow beyond a batch
			}
			mustWatch(t, p, newOp(t), NoTimeout, keys...)
			if round < 450 && round%3 == 0 {
				p.CancelForKey(rng.IntN(40), nil)
			}
			if round%7 != 0 {
				continue
			}
			all := slices.SortedFunc(p.All(), func(a, b Waiting[int]) int { return cmp.Compare(b.Age, a.Age) })
			for _, n := range []int{-1, 0, 1, 7, 1000} {
				want, got := all[:min(max(n, 0), len(all))], p.Oldest(n)
				require.Len(t, got, len(want))
				for i := range want {
					require.Equal(t, want[i].Pending, got[i].Pending)
					require.Equal(t, want[i].Age, got[i].Age)
					require.Equal(t, want[i].Keys(), got[i].Keys())
				}
			}
		}
		mustShutdown(t, p)
	})
}

// P16: Oldest goals against All.
func TestP16OldestGoals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 0))
		r := newThresholdFixture(t, Options{})
		for round := range 400 {
			time.Sleep(time.Millisecond)
			goals := []Goal[int, int]{{rng.IntN(3), 1 + rng.IntN(9)}, {3 + rng.IntN(400), 1 + rng.IntN(9)}}
			r.mustWatch(newOp(t), time.Hour, All, goals[:1+rng.IntN(2)]...)
			if round%30 != 0 {
				continue
			}
			all := slices.SortedFunc(r.All(), func(a, b WaitingGoal[int, int]) int { return cmp.Compare(b.Age, a.Age) })
			for _, n := range []int{-1, 0, 1, 8, 2000} {
				want, got := all[:min(max(n, 0), len(all))], r.Oldest(n)
				require.Len(t, got, len(want))
				for i := range want {
					require.Equal(t, want[i].Age, got[i].Age)
					require.Equal(t, want[i].Deadline, got[i].Deadline)
				}
				if n > len(all) {
					require.ElementsMatch(t, want, got)
				}
			}
		}
		require.NoError(t, r.Shutdown(context.Background()))
		require.Empty(t, r.Oldest(1))
	})
}

// P16: an operation that was ended during its check is still in the lists, but not listed.
func TestP16EndedIsNotShown(t *testing.T) {
	p := open[int](t, Options{})
	var h Pending
	op := newFaultyOp(t, 3, func() { // by CheckAndComplete
		require.Len(t, p.Oldest(1), 1)
		require.True(t, h.Cancel(nil))
		require.Empty(t, p.Oldest(1))
		for range p.All() {
			t.Error("it has ended")
		}
	})
	h = mustWatch(t, p, op, NoTimeout, 1)
	require.Zero(t, p.CheckAndComplete(1))
	require.EqualValues(t, 3, op.checks.Load())
	mustShutdown(t, p)
}

// P16: a key with a thousand watchers is not locked during a whole listing: operations that end
// before their turn are not listed. The loop may break in between.
func TestP16AllIsInBatches(t *testing.T) {
	const n = 1000
	p := open[int](t, Options{})
	r := newThresholdFixture(t, Options{})
	watches, goals := make([]Pending, n), make([]Pending, n)
	for i := range n {
		watches[i] = mustWatch(t, p, newOp(t), NoTimeout, 1)
		goals[i] = r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 1 + i/3}) // some are equal
	}
	// met returns which operations are listed, at most the first so many, by their numbers.
	met := func(all iter.Seq[Pending], parks []Pending, most int) (met []int) {
		for h := range all {
			if met = append(met, slices.Index(parks, h)); len(met) == most {
				break
			}
		}
		return met
	}
	numbers := slices.Collect(func(yield func(int) bool) {
		for i := range n {
			yield(i)
		}
	})
	ofWatches, ofGoals := func(yield func(Pending) bool) {
		for x := range p.All() {
			if !yield(x.Pending) {
				break
			}
		}
	}, func(yield func(Pending) bool) {
		for x := range r.All() {
			if !yield(x.Pending) {
				break
			}
		}
	}
	for _, c := range []struct {
		all   iter.Seq[Pending]
		parks []Pending
	}{{ofWatches, watches}, {ofGoals, goals}} {
		for _, most := range []int{n / 2, n, n + 1} {
			require.Equal(t, numbers[:min(most, n)], met(c.all, c.parks, most))
		}
		seen := 0
		for h := range c.all {
			require.False(t, c.parks[n-1] == h, "it has ended")
			if seen++; seen == 1 {
				require.True(t, c.parks[n-1].Cancel(nil))
			}
		}
		require.Equal(t, n-1, seen)
		for _, h := range c.parks[:n-1] {
			require.True(t, h.Cancel(nil))
		}
		require.Empty(t, met(c.all, c.parks, n))
	}
	requireEmpty(t, p)
	mustShutdown(t, p)
	require.Zero(t, r.KeyCount())
	require.NoError(t, r.Shutdown(t.Context()))
}

// P16: a listing ends even if the listed operations wait again behind it.
func TestP16AllEnds(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	p := open[int](t, Options{})
	for i := range 200 {
		r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 1 + i})
		mustWatch(t, p, newOp(t), NoTimeout, 1)
	}
	met := 0
	for x := range r.All() {
		require.True(t, x.Pending.Cancel(nil))
		r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{1, 1000 + met})
		met++
	}
	require.Equal(t, 200, met)
	for x := range p.All() {
		require.True(t, x.Pending.Cancel(nil))
		mustWatch(t, p, newOp(t), NoTimeout, 1)
		met++
	}
	require.Equal(t, 400, met)
	mustShutdown(t, p)
	require.NoError(t, r.Shutdown(t.Context()))
}

// P16: Oldest ranks operations by their start, however late it reads their keys.
func TestP16OldestOfManyKeys(t *testing.T) {
	p := open[int](t, Options{})
	const n = 20_000
	came := make([]time.Duration, n)
	for i := range n {
		came[i] = mustWatch(t, p, newOp(t), NoTimeout, i).w.since
	}
	slices.Sort(came)
	for i, x := range p.Oldest(20) {
		require.Equal(t, came[i], x.Pending.w.since)
	}
	mustShutdown(t, p)
}

// P16: a Threshold lists its goals.
func TestP16ThresholdAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThresholdFixture(t, Options{})
		h := r.mustWatch(newOp(t), time.Minute, All, Goal[int, int]{1, 5}, Goal[int, int]{2, 7})
		time.Sleep(time.Second)
		other := r.mustWatch(newOp(t), NoTimeout, Any, Goal[int, int]{1, 5})
		got := slices.SortedFunc(r.All(), func(a, b WaitingGoal[int, int]) int { return a.Key*2 - b.Key*2 + int(b.Age-a.Age)/int(time.Second) })
		deadline, ok := h.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute-time.Second, time.Until(deadline))
		for i := range got {
			if !got[i].Deadline.IsZero() {
				require.True(t, got[i].Deadline.Equal(deadline))
				got[i].Deadline = time.Time{}
			}
		}
		require.Equal(t, []WaitingGoal[int, int]{
			{Goal: Goal[int, int]{1, 5}, Pending: h, Age: time.Second},
			{Goal: Goal[int, int]{1, 5}, Pending: other},
			{Goal: Goal[int, int]{2, 7}, Pending: h, Age: time.Second},
		}, got)
		require.Equal(t, []int{2, 1, 0}, []int{r.Watching(1), r.Watching(2), r.Watching(3)})
		for range r.All() {
			break
		}
		require.NoError(t, r.Shutdown(t.Context()))
	})
}

// P16: refusals are counted by their cause; Stats has the name.
func TestP16Refusals(t *testing.T) {
	p := open[int](t, Options{MaxPending: 1, Name: "requests"})
	r, err := NewThreshold(func(int) int { return 0 }, Options{MaxPending: 1, Name: "acks"})
	require.NoError(t, err)
	try := func() (errs [2]error) {
		_, errs[0] = p.TryCompleteElseWatch(t.Context(), newOp(t), NoTimeout, 1)
		_, errs[1] = r.TryCompleteElseWatch(t.Context(), newOp(t), NoTimeout, All, Goal[int, int]{1, 1})
		return errs
	}
	require.Equal(t, [2]error{}, try())
	require.Equal(t, [2]error{ErrFull, ErrFull}, try())
	require.Equal(t, [2]error{ErrFull, ErrFull}, try())
	require.NoError(t, errors.Join(p.Shutdown(t.Context()), r.Shutdown(t.Context())))
	require.Equal(t, [2]error{ErrClosed, ErrClosed}, try())
	for name, st := range map[string]Stats{"requests": p.Stats(), "acks": r.Stats()} {
		require.Equal(t, name, st.Name)
		require.EqualValues(t, 2, st.RefusedFull)
		require.EqualValues(t, 1, st.RefusedClosed)
		require.EqualValues(t, 1, st.Ended())
	}
}

// P16: the goroutines of a named purgatory carry its name as a label, and not that of the
// goroutine that first needed them.
func TestP16Label(t *testing.T) {
	p := open[int](t, Options{Name: "labelled-one"})
	op := newOp(t)
	ended := make(chan bool)
	op.end = func(Outcome) { close(ended); <-ended }
	pprof.Do(context.Background(), pprof.Labels("limbo", "caller"), func(context.Context) { mustWatch(t, p, op, 0, 1) })
	<-ended
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	require.Contains(t, profile.String(), `"limbo":"labelled-one"`)
	require.NotContains(t, profile.String(), `"limbo":"caller"`)
	mustShutdown(t, p)
}

// P16: waiting times by outcome, only of operations that waited at all.
func TestP16Waited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Tick: time.Millisecond})
		now := newOp(t)
		now.ready.Store(true)
		_, err := p.TryCompleteElseWatch(t.Context(), now, time.Minute, 1)
		require.NoError(t, err)
		for i := range 10 {
			op := newOp(t)
			mustWatch(t, p, op, time.Second, 1)
			if i < 4 {
				time.Sleep(100 * time.Millisecond)
				op.ready.Store(true)
				require.Equal(t, 1, p.CheckAndComplete(1))
			}
		}
		time.Sleep(2 * time.Second)
		st := p.Stats()
		require.EqualValues(t, 4, st.Waited[Completed].Count)
		require.InDelta(t, 0.4, st.Waited[Completed].Sum, 1e-9)
		require.Equal(t, 100*time.Millisecond, st.Waited[Completed].Mean())
		require.EqualValues(t, 6, st.Waited[Expired].Count)
		require.Equal(t, time.Second, st.Waited[Expired].Mean())
		require.Equal(t, histogram.Durations{}, st.Waited[0])
		require.EqualValues(t, 6, st.Late.Count)
		require.Zero(t, st.Late.Sum)
		mustShutdown(t, p)
	})
}

// P16: an operation's keys can be read while it is about to enter a long list: the race
// detector checks the positions in its record.
func TestP16KeysWhileEntering(t *testing.T) {
	p := open[int](t, Options{})
	const long = 0
	for range maxContiguous {
		mustWatch(t, p, newOp(t), NoTimeout, long)
	}
	other := 1
	for bucketOf(p, other) == bucketOf(p, long) {
		other++
	}
	gate := bucketOf(p, long)
	gate.mu.Lock()
	entered, listed := make(chan Pending), make(chan []int)
	go func() { entered <- mustWatch(t, p, newOp(t), NoTimeout, other, long) }()
	blockedOnMutex(t, "enter")
	go func() {
		b := bucketOf(p, other)
		b.mu.Lock()
		x := p.waiting(b.find(other, p.hash(other)).value.first().handle(), time.Now())
		b.mu.Unlock()
		listed <- x.Keys()
	}()
	blockedOnMutex(t, "Keys")
	gate.mu.Unlock() // the entering goroutine is mostly first
	require.Contains(t, [][]int{{other, long}, {other}}, <-listed)
	require.True(t, (<-entered).Waiting())
	verify(t, p)
	mustShutdown(t, p)
}

// A key whose operations end while All reads them is removed when All has passed it.
func TestAllLeavesNoKey(t *testing.T) {
	p := open[int](t, Options{})
	var handles []Pending
	for range maxContiguous + 5*perChunk {
		handles = append(handles, mustWatch(t, p, newOp(t), NoTimeout, 1))
	}
	met := 0
	for range p.All() {
		for _, h := range handles {
			h.Cancel(nil)
		}
		met++
	}
	require.Less(t, met, len(handles), "the walk was over before it paused")
	require.Zero(t, p.KeyCount())
	verify(t, p)
	mustShutdown(t, p)
}
