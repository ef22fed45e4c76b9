package calls

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// faultyContext is a context whose methods are replaced by the functions that are set.
type faultyContext struct {
	context.Context
	err   func() error
	done  func() <-chan struct{}
	value func() any
}

func (c *faultyContext) Err() error {
	if c.err != nil {
		return c.err()
	}
	return c.Context.Err()
}

func (c *faultyContext) Done() <-chan struct{} {
	if c.done != nil {
		return c.done()
	}
	return c.Context.Done()
}

func (c *faultyContext) Value(key any) any {
	if c.value != nil {
		return c.value()
	}
	return c.Context.Value(key)
}

// A context that panics, or ends its goroutine, at any time leaves no call and no timer behind.
func TestContextMisbehaves(t *testing.T) {
	for how, fail := range map[string]func(){"panics": func() { panic("no") }, "ends its goroutine": runtime.Goexit} {
		for name, fault := range map[string]func(c *faultyContext){
			"typed nil": nil,
			"Done":      func(c *faultyContext) { c.done = func() <-chan struct{} { fail(); return nil } },
			"Err":       func(c *faultyContext) { c.err = func() error { fail(); return nil } },
			"Err, once done": func(c *faultyContext) {
				c.err = func() error {
					if c.Context.Err() != nil {
						fail()
					}
					return nil
				}
				c.value = func() any { return nil }
			},
			"Value, once done": func(c *faultyContext) { c.value = func() any { fail(); return nil } },
		} {
			for _, timeout := range []time.Duration{time.Hour, NoTimeout} {
				t.Run(name+" "+how+" "+timeout.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := table(t, Options{MaxPending: 1})
						parent, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						var ctx *faultyContext
						if fault != nil {
							ctx = &faultyContext{Context: parent}
							fault(ctx)
						}
						returned := false
						go func() {
							defer func() { _ = recover() }()
							_, _ = c.Do(ctx, 1, timeout, sendNothing)
							returned = true
						}()
						time.Sleep(time.Minute)
						synctest.Wait()
						require.False(t, returned)
						st := c.Stats()
						require.Zero(t, st.Pending, "the call is left behind")
						require.Zero(t, timers(c), "its timer is left behind")
						require.NoError(t, c.Go(1, time.Hour, sendNothing, func(string, error) {}))
						require.True(t, c.Reply(1, ""))
					})
				})
			}
		}
	}
}

// A nil error would mean a reply: a context that is done without a reason counts as cancelled.
func TestContextWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		closed := make(chan struct{})
		close(closed)
		ctx := &faultyContext{Context: context.Background(), done: func() <-chan struct{} { return closed }}
		_, err := c.Do(ctx, 1, time.Hour, sendNothing)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// The zero Table and the zero Group panic at their first use, without a lock.
func TestZeroValues(t *testing.T) {
	var c Table[int, string]
	var g Group[int, string]
	discard := func(string, error) {}
	for name, uses := range map[string][]func(){
		"calls: the zero Table is not usable, make one with New": {
			func() { _, _ = c.Do(t.Context(), 1, time.Second, sendNothing) },
			func() { _ = c.Go(1, time.Second, sendNothing, discard) },
			func() { c.Reply(1, "") },
			func() { c.Fail(1, io.EOF) },
			func() { c.Group() },
			func() { c.All() },
			func() { c.Stats() },
			func() { c.Levels() },
			func() { c.Close() },
			func() { _ = c.Shutdown(t.Context()) },
		},
		"calls: the zero Group is not usable, make one with Table.Group": {
			func() { _, _ = g.Do(t.Context(), 1, time.Second, sendNothing) },
			func() { _ = g.Go(1, time.Second, sendNothing, discard) },
			func() { g.Reply(1, "") },
			func() { g.Fail(1, io.EOF) },
			func() { g.CloseWithError(nil) },
			func() { g.Len() },
			func() { g.All() },
		},
	} {
		for i, use := range uses {
			require.PanicsWithValue(t, name, use, "use %d", i)
		}
	}
	require.True(t, c.mu.TryLock())
}

// A call that ends in one group while another begins is not counted in both: Stats reports at
// most MaxPending.
func TestStatsWaitingIsBounded(t *testing.T) {
	c := table(t, Options{MaxPending: 1})
	discard := func(string, error) {}
	first, held, last := c.Group(), c.Group(), c.Group()
	require.NoError(t, first.Go(1, time.Hour, sendNothing, discard))
	held.parts[0].mu.Lock() // the group is busy
	stats := make(chan Stats)
	go func() { stats <- c.Stats() }()
	for range 1000 { // Stats reaches held
		runtime.Gosched()
	}
	require.True(t, first.Reply(1, ""))
	require.NoError(t, last.Go(1, time.Hour, sendNothing, discard))
	held.parts[0].mu.Unlock()
	require.LessOrEqual(t, (<-stats).Pending, 1)
}

// If a reply has taken its call but not yet delivered it when the context is done, Do returns
// the reply.
func TestReplyRacesCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		go func() {
			r, err := c.Do(ctx, 1, time.Minute, sendNothing)
			require.NoError(t, err)
			got = append(got, r)
		}()
		synctest.Wait()
		taken := c.ungrouped.part(1).remove(1, purgatory.Completed)
		cancel()
		synctest.Wait()
		require.Empty(t, got, "Do returns before it has the outcome")
		taken.end("one", nil)
		synctest.Wait()
		require.Equal(t, []string{"one"}, got)
	})
}

// A panic goes to the hook, or is logged once without a hook. A panic of the hook is logged
// with the original panic, and a panic of the logger goes no further.
func TestPanicsAreReported(t *testing.T) {
	logger := slog.Default()
	defer slog.SetDefault(logger)
	var log strings.Builder
	reported := func(hook func(timingwheel.Panic)) []string {
		log.Reset()
		c := table(t, Options{OnPanic: hook})
		require.NoError(t, c.Go(1, time.Minute, sendNothing, func(string, error) { panic("done panics") }))
		require.NotPanics(t, func() { require.True(t, c.Reply(1, "")) })
		lines := strings.Split(log.String(), "\n")
		return lines[:len(lines)-1]
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	lines := reported(nil)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], `level=ERROR msg="calls: done function panicked" panic="done panics" stack=`)
	require.Empty(t, reported(func(p timingwheel.Panic) { require.Equal(t, "done panics", p.Value) }))
	lines = reported(func(timingwheel.Panic) { panic("the hook panics") })
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `panic="done panics"`)
	require.Contains(t, lines[1], `panic="the hook panics"`)
	slog.SetDefault(slog.New(panickingHandler{slog.DiscardHandler}))
	require.Empty(t, reported(nil))
}

// panickingHandler is a logger's handler.
type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool { panic("the logger panics") }
