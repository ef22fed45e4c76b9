package timingwheel

import (
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contracts about times: T1, T2, T7, T8, T14, T16. Times are exact in a bubble, so these tests
// allow no tolerance.

// geometries are wheels that overflow at once, and the default one.
func geometries(f func(name string, o Options)) {
	for _, tick := range []time.Duration{1, 7, time.Microsecond, time.Millisecond, 3*time.Millisecond + 1, 100 * time.Millisecond} {
		for _, size := range []int{2, 3, 256} {
			for _, shards := range []int{1, 4} {
				for _, workers := range []int{1, 3} {
					o := Options{Tick: tick, WheelSize: size, Shards: shards, Workers: workers}
					f(fmt.Sprintf("tick=%v/size=%d/shards=%d/workers=%d", tick, size, shards, workers), o)
				}
			}
		}
	}
}

// T1, T2, T7, timers 10, timers 12, timers 14 (first run): at any tick, delay and phase a timer
// runs at the first tick at or after its deadline, or at once if it is already due.
func TestRunsAtItsTick(t *testing.T) {
	geometries(func(name string, o Options) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, o)
				want := map[int]time.Duration{}
				for phase := range 9 {
					// Phases within the tick and within the spans of the levels.
					time.Sleep(o.Tick*time.Duration(phase*phase) + o.Tick/7*time.Duration(phase))
					for _, ticks := range []time.Duration{-1, 0, 1, 2, 3, 4, 5, 8, 16, 17, 63, 255, 256, 257, 1000, 65536, 1 << 20} {
						for _, off := range []time.Duration{-o.Tick, -o.Tick / 2, -1, 0, 1, o.Tick / 3} {
							want[len(want)] = f.due(ticks*o.Tick + off)
							f.schedule(len(want)-1, ticks*o.Tick+off)
						}
					}
				}
				f.advance(o.Tick << 21)
				ran := f.fired()
				require.Len(t, ran, len(want))
				for _, r := range ran {
					require.Equal(t, want[r.v], r.at, "timer %d", r.v)
				}
				require.Zero(t, f.Len())
			})
		})
	})
}

// T1, T2, T7, timers 12: deadlines as points in time, past ones included.
func TestScheduleAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Tick: 10 * time.Millisecond, WheelSize: 2})
		time.Sleep(25 * time.Millisecond)
		now := time.Now()
		want := map[int]time.Duration{}
		for i, d := range []time.Duration{-time.Hour, -1, 0, 1, 5 * time.Millisecond, 5*time.Millisecond + 1, time.Second, math.MinInt64} {
			_, err := f.ScheduleAt(i, now.Add(d))
			require.NoError(t, err)
			want[i] = f.due(d)
		}
		for i, at := range []time.Time{{}, time.Unix(0, 0), now.Add(time.Second).UTC().Round(0)} {
			_, err := f.ScheduleAt(100+i, at)
			require.NoError(t, err)
			want[100+i] = f.due(at.Sub(now))
		}
		never, err := f.ScheduleAt(-1, now.AddDate(1000, 0, 0))
		require.NoError(t, err)
		f.advance(time.Hour)
		for _, r := range f.fired() {
			require.Equal(t, want[r.v], r.at, "timer %d", r.v)
			delete(want, r.v)
		}
		require.Empty(t, want)
		require.True(t, f.Stop(never))
	})
}

// T7, timers 12: a timer that is due at once does not run in the caller, nor before Schedule
// has released its locks.
func TestDueAtOnceRunsOnAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, delay := range []time.Duration{0, -1, math.MinInt64} {
			onWorker := false
			f := start(t, Options{Workers: 1}, func(int) { onWorker = strings.Contains(string(debug.Stack()), "(*workers[") })
			f.schedule(1, delay)
			f.waitIdle()
			require.Equal(t, []firing{{1, 0}}, f.fired())
			require.True(t, onWorker)
			h := f.schedule(2, time.Hour)
			require.True(t, f.Reset(h, delay))
			f.waitIdle()
			require.Equal(t, []int{2}, f.values())
			require.True(t, onWorker)
		}
	})
}

// T8, timers 11: MaxInt64 saturates, at any clock reading.
func TestMaxInt64Saturates(t *testing.T) {
	for _, tick := range []time.Duration{1, 3, time.Millisecond, time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{Tick: tick, WheelSize: 2, Shards: 1})
			time.Sleep(12345 * time.Millisecond)
			var hs []Timer
			for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 12345*time.Millisecond} {
				hs = append(hs, f.schedule(1, d))
			}
			h := f.schedule(2, 1)
			require.True(t, f.Reset(h, math.MaxInt64))
			f.advance(200 * 365 * 24 * time.Hour)
			require.Empty(t, f.fired())
			for _, h := range append(hs, h) {
				require.True(t, f.Stop(h))
			}
			f.waitIdle()
		})
	}
}

// T8, timers 13: the clock crosses every boundary of every level, with timers that come due
// just before, at and after it, scheduled just before, at and after the boundary below.
func TestEveryLevelBoundary(t *testing.T) {
	t.Parallel()
	const end = 1 << 61 // of the range of the bubble's clock
	for _, g := range []struct {
		tick time.Duration
		size int
	}{{1, 2}, {1, 4}, {1, 256}, {1, 1 << 16}, {3, 2}, {time.Microsecond, 8}, {time.Millisecond, 2}, {time.Millisecond, 256}, {time.Hour, 2}} {
		t.Run(fmt.Sprintf("tick=%v/size=%d", g.tick, g.size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, Options{Tick: g.tick, WheelSize: g.size, Shards: 1, Workers: 1})
				want := map[int]time.Duration{}
				add := func(at time.Duration) {
					if d := at - f.since(); d > 0 {
						want[len(want)] = f.due(d)
						f.schedule(len(want)-1, d)
					}
				}
				var bounds []time.Duration
				for b := g.tick; b <= end; b *= time.Duration(g.size) {
					bounds = append(bounds, b)
					if b > end/time.Duration(g.size) {
						break
					}
				}
				for k, b := range bounds {
					for _, from := range []time.Duration{b - g.tick, b, b + g.tick} {
						if from < f.since() {
							continue
						}
						f.advance(from - f.since())
						for _, next := range bounds[k:min(k+3, len(bounds))] {
							for _, off := range []time.Duration{-g.tick, 0, g.tick} {
								add(next + off)
								add(from + next + off)
							}
						}
					}
				}
				f.advance(4*bounds[len(bounds)-1] - f.since())
				ran := f.fired()
				require.Len(t, ran, len(want))
				for _, r := range ran {
					require.Equal(t, want[r.v], r.at, "timer %d", r.v)
				}
			})
		})
	}
}

// T8: the last ticks that an int64 holds. The clock cannot get there, so the test runs the
// advancer's turns and checks that each timer becomes ready at its own deadline: at the flush
// the clock is neither before nor past it.
func TestLastTicks(t *testing.T) {
	for i := range 8 {
		size := []int{2, 4, 256, 1 << 16}[i/2]
		clock := []tick{math.MaxInt64 - 70_000, math.MaxInt64 - 3}[i%2]
		synctest.Test(t, func(t *testing.T) {
			g := make(gate)
			f := start(t, Options{Tick: 1, WheelSize: size, Shards: 1, Workers: 1}, g.wait)
			defer close(g)
			f.stopAdvancer()
			f.blockWorkers(1)
			s := f.shards[0]
			s.advance(clock)
			left := 0
			for k := range 62 {
				for _, d := range []tick{clock + 1<<k, math.MaxInt64 - 1<<k + 1} {
					if d <= clock { // wrapped, or passed
						continue
					}
					i, n, _ := s.lists.timers.alloc()
					n.value, n.deadline = k, d
					s.counts.pending++
					s.counts.scheduled++
					s.place(i, n)
					left++
				}
			}
			for f.shared.queue.Len() > 0 {
				s, id := f.head()
				f.flush(s, id)
				s.lists.buckets.each(func(_ uint32, n *node[bucket]) {
					b := &n.value
					s.lists.each(b, func(_ uint32, n *node[int]) {
						if b.state == bucketReady {
							require.LessOrEqual(t, n.deadline, s.clock)
							require.Equal(t, b.expiration, n.deadline)
						} else {
							require.GreaterOrEqual(t, n.deadline, s.clock)
						}
					})
				})
			}
			require.Equal(t, left, s.counts.ready)
			require.Equal(t, tick(math.MaxInt64), s.clock)
			s.clock, s.catchUpAt = 0, after(0, time.Duration(s.shared.tick)<<s.sizeBits) // for verify
			s.readyUntil = math.MaxInt64                                                 // of the ready timers, at any clock
		})
	}
}

// T8: place chooses the level and the bucket that the definition gives, everywhere around the
// first boundaries.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 4, 8} {
		f := start(t, Options{WheelSize: size, Shards: 1})
		f.stopAdvancer()
		s := f.shards[0]
		for c := range tick(140) {
			for d := c + 1; d < c+300; d++ {
				s.clock = 0
				s.advance(c)
				i, n, _ := s.lists.timers.alloc()
				n.deadline = d
				s.counts.pending++
				s.counts.scheduled++
				s.place(i, n)
				level, span := 0, tick(1)
				for d/span-c/span >= 2*tick(size) {
					level++
					span *= tick(size)
				}
				b := *s.lists.bucketOf(n)
				require.Equal(t, bucket{
					head: n.pos.chunk(), tail: n.pos.chunk(), count: 1, level: uint8(level), state: bucketWaiting,
					expiration: d / span * span, seq: b.seq,
				}, b)
				require.Greater(t, s.flushTick(&b), c)
				require.LessOrEqual(t, b.expiration-s.flushTick(&b), span/2)
				require.True(t, f.Stop(makeTimer(0, n.gen, i)))
				f.advancer.prune()
			}
		}
		s.clock = 0
		s.advance(0)
	}
}

// T14, timers 16: a deadline by the wall clock is converted to a delay by the current wall
// clock, not by that of New: it may have been set in between.
func TestWallClockWasSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		f := start(t, Options{Tick: 1, Shards: 1})
		f.stopAdvancer()
		// As if the wall clock had been set ahead by step since New.
		f.shared.base = withWall(f.shared.base, f.shared.base.Add(-step))
		lo := f.shared.now()
		at := time.Now().Add(24 * time.Hour)
		mono, err := f.ScheduleAt(1, at)
		require.NoError(t, err)
		wall, err := f.ScheduleAt(2, at.Round(0))
		require.NoError(t, err)
		plain := f.schedule(3, 24*time.Hour)
		hi := f.shared.now()
		for _, h := range []Timer{mono, wall, plain} {
			d := nanos(f.shards[0].lists.timers.node(h.index()).deadline) - nanos(24*time.Hour)
			// The two clocks are not read at the same instant, so the wall clock's value is not
			// exact; it must not be off by the step.
			slack := nanos(step.Abs() / 2)
			require.True(t, lo-slack <= d && d <= hi+slack, "off by %v", time.Duration(d-lo))
		}
	}
}

// T2, timers 14, timers 9: a timer whose callback schedules the next one drifts only by
// rounding: each runs at the first tick after the delay. With a deadline instead of a delay it
// does not drift.
func TestRescheduleDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 1000
		var f *fixture
		var next time.Time
		f = start(t, Options{WheelSize: 2}, func(v int) {
			switch {
			case v == 1:
				f.Schedule(1, 6*time.Millisecond) // timers 9: its own value again
			case v == 2:
				next = next.Add(2500 * time.Microsecond)
				f.ScheduleAt(2, next)
			}
		})
		next = time.Now()
		f.schedule(1, 6*time.Millisecond)
		f.schedule(2, 0)
		time.Sleep(rounds * 6 * time.Millisecond)
		synctest.Wait()
		ones, twos := 0, 0
		for _, r := range f.fired() {
			if r.v == 1 {
				ones++
				require.Equal(t, time.Duration(ones)*6*time.Millisecond, r.at)
				continue
			}
			want := time.Duration(twos) * 2500 * time.Microsecond
			require.Equal(t, (want + want%time.Millisecond), r.at)
			twos++
		}
		require.Equal(t, rounds, ones)
		require.Equal(t, rounds*6*2/5+1, twos)
	})
}

// T1, T8: rounding up to ticks and back, up to the end of time.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		tick, at           nanos
		floor, ceil        tick
		startCeil, startFl nanos
	}{
		{1, 0, 0, 0, 0, 0},
		{10, 9, 0, 1, 10, 0},
		{10, 10, 1, 1, 10, 10},
		{10, 11, 1, 2, 20, 10},
		{1, maxNanos, math.MaxInt64, math.MaxInt64, maxNanos, maxNanos},
		{10, maxNanos, math.MaxInt64 / 10, math.MaxInt64/10 + 1, maxNanos, maxNanos / 10 * 10},
		{maxNanos, maxNanos - 1, 0, 1, maxNanos, 0},
		{maxNanos, maxNanos, 1, 1, maxNanos, maxNanos},
		{maxNanos - 1, maxNanos, 1, 2, maxNanos, maxNanos - 1},
	} {
		w := &timescale{tick: c.tick}
		require.Equal(t, c.floor, w.floor(c.at))
		require.Equal(t, c.ceil, w.ceil(c.at))
		require.Equal(t, c.startFl, w.start(c.floor))
		require.Equal(t, c.startCeil, w.start(c.ceil))
	}
	require.Equal(t, maxNanos, after(1, math.MaxInt64))
	require.Equal(t, maxNanos, after(maxNanos, math.MaxInt64))
	require.Equal(t, maxNanos, after(2, math.MaxInt64-2))
	require.Equal(t, maxNanos-1, after(2, math.MaxInt64-3))
}
