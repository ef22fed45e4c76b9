package calls

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Lesson calls 2. If a done function or a panic hook panics or ends its goroutine while its
// group or table closes, all other calls still end.
func TestCloseEndsAllCalls(t *testing.T) {
	logger := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(logger)
	for name, o := range map[string]struct {
		done func()
		hook func(timingwheel.Panic)
	}{
		"done ends its goroutine":     {runtime.Goexit, nil},
		"the hook ends its goroutine": {func() { panic("no") }, func(timingwheel.Panic) { runtime.Goexit() }},
		"the hook panics":             {func() { panic("no") }, func(timingwheel.Panic) { panic("no hook") }},
	} {
		t.Run(name, func(t *testing.T) {
			for name, end := range map[string]func(*Table[int, string], *Group[int, string]){
				"group": func(_ *Table[int, string], g *Group[int, string]) { g.CloseWithError(io.EOF) },
				"table": func(c *Table[int, string], _ *Group[int, string]) { c.Close() },
			} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := table(t, Options{OnPanic: o.hook})
						g := c.Group()
						const n = 50
						var ended [2 * n]atomic.Int64
						for id := range n {
							require.NoError(t, g.Go(id, time.Hour, sendNothing, func(_ string, err error) {
								ended[id].Add(1)
								o.done()
							}))
							go func() {
								_, err := g.Do(context.Background(), n+id, time.Hour, sendNothing)
								require.Error(t, err)
								ended[n+id].Add(1)
							}()
						}
						synctest.Wait()
						require.Equal(t, 2*n, g.Len())
						var wg sync.WaitGroup
						wg.Go(func() { end(c, g) })
						wg.Wait()
						synctest.Wait()
						for id := range ended {
							require.Equal(t, int64(1), ended[id].Load(), "call %d", id)
						}
						st := c.Stats()
						require.Zero(t, st.Pending)
						require.Zero(t, st.Groups)
						require.Zero(t, st.DoWheel.Pending+st.GoWheel.Pending)
						require.Equal(t, uint64(2*n), st.Failed+st.Closed)
						if name == "table" {
							require.ErrorIs(t, c.Go(1, time.Hour, sendNothing, func(string, error) {}), ErrClosed)
							for _, w := range c.wheels() {
								_, err := w.Schedule(nil, time.Hour)
								require.ErrorIs(t, err, timingwheel.ErrClosed)
							}
						}
					})
				})
			}
		})
	}
}

// Calls of Do end before done functions are called, which may wait for them.
func TestCloseEndsDoFirst(t *testing.T) {
	for name, end := range map[string]func(*Table[int, string], *Group[int, string]){
		"group": func(_ *Table[int, string], g *Group[int, string]) { g.CloseWithError(nil) },
		"table": func(c *Table[int, string], _ *Group[int, string]) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := table(t, Options{})
				g := c.Group()
				var returned atomic.Int64
				var got []error
				for id := range 50 {
					require.NoError(t, g.Go(id, time.Hour, sendNothing, func(_ string, err error) {
						time.Sleep(time.Second) // for the callers' goroutines
						require.Equal(t, int64(50), returned.Load(), "calls of Do that have ended")
						got = append(got, err)
					}))
					go func() {
						_, err := g.Do(context.Background(), 100+id, time.Hour, sendNothing)
						require.ErrorIs(t, err, ErrClosed)
						returned.Add(1)
					}()
				}
				synctest.Wait()
				end(c, g)
				require.Len(t, got, 50)
				for _, err := range got {
					require.ErrorIs(t, err, ErrClosed)
				}
			})
		})
	}
}

// A group made after the table's Close is refused, and counted.
func TestGroupAfterClose(t *testing.T) {
	c := table(t, Options{})
	c.Close()
	g := c.Group()
	require.Zero(t, c.Stats().Groups)
	_, err := g.Do(t.Context(), 1, time.Minute, sendNothing)
	require.ErrorIs(t, err, ErrClosed)
	require.False(t, g.Reply(1, ""))
	require.Zero(t, g.CloseWithError(io.EOF))
	_, err = g.Do(t.Context(), 1, time.Minute, sendNothing)
	require.ErrorIs(t, err, ErrClosed)
	st := c.Stats()
	require.Equal(t, []uint64{2, 1}, []uint64{st.RefusedClosed, st.Unmatched})
	require.Zero(t, st.Groups)
}

// Groups that are closed in any order are removed, and no others, and their memory is
// released.
func TestClosedGroupsAreRemoved(t *testing.T) {
	c := table(t, Options{})
	groups := make([]*Group[int, string], 2000)
	for i := range groups {
		groups[i] = c.Group()
		require.NoError(t, groups[i].Go(i, time.Hour, sendNothing, func(string, error) {}))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(groups), func(i, k int) { groups[i], groups[k] = groups[k], groups[i] })
	for left := len(groups) - 1; left >= 0; left-- {
		require.Equal(t, 1, groups[left].CloseWithError(nil))
		require.Zero(t, groups[left].CloseWithError(nil))
		if left%500 > 0 {
			continue
		}
		require.Equal(t, left, c.Stats().Groups)
		known := map[*Group[int, string]]bool{c.ungrouped: true}
		for _, g := range groups[:left] {
			known[g] = true
		}
		require.Len(t, c.all(), left+1)
		for _, g := range c.all() {
			require.True(t, known[g])
			delete(known, g)
		}
		require.Empty(t, known)
		c.mu.Lock()
		capacity := cap(c.groups)
		c.mu.Unlock()
		require.LessOrEqual(t, capacity, max(4*(left+2), 64))
	}
}

// Stats delays no connection that opens or closes, whatever one group is doing, and counts the
// calls of groups that close in between.
func TestStatsDelaysNoCall(t *testing.T) {
	c := table(t, Options{})
	groups := make([]*Group[int, string], 100)
	for i := range groups {
		g := c.Group()
		_, err := g.Do(t.Context(), 1, time.Minute, func() error { g.Reply(1, ""); return nil })
		require.NoError(t, err)
		groups[i] = g
	}
	p := &c.Group().parts[0]
	p.mu.Lock() // the group is busy
	stats := make(chan Stats)
	go func() { stats <- c.Stats() }()
	for range 1000 { // Stats reaches p
		runtime.Gosched()
		require.Zero(t, c.Group().CloseWithError(nil))
	}
	for _, g := range groups {
		require.Zero(t, g.CloseWithError(nil))
	}
	p.mu.Unlock()
	require.Equal(t, uint64(100), (<-stats).Completed)
}

// Each call is counted once while groups are closed.
func TestStatsWhileGroupsClose(t *testing.T) {
	c := table(t, Options{})
	var begun, ended atomic.Uint64
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for range 1000 {
				g := c.Group()
				begun.Add(1)
				_, err := g.Do(t.Context(), 1, time.Minute, func() error { g.Reply(1, ""); return nil })
				if err != nil {
					t.Error(err)
				}
				ended.Add(1)
				g.CloseWithError(nil)
				if _, err := g.Do(t.Context(), 1, time.Minute, sendNothing); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		others.Wait()
		close(done)
	}()
	for more := true; more; {
		select {
		case <-done:
			more = false
		default:
		}
		least := ended.Load()
		st := c.Stats()
		most := begun.Load()
		require.LessOrEqual(t, least, st.Completed, "a call is lost")
		require.LessOrEqual(t, st.Completed, most, "a call counts twice")
		require.LessOrEqual(t, st.RefusedClosed, most)
	}
	st := c.Stats()
	require.Equal(t, []uint64{2000, 2000}, []uint64{st.Completed, st.RefusedClosed})
}
