package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
)

// stream is the client of a stream in a synctest bubble: it reads the events from a pipe.
type stream struct {
	cancel context.CancelFunc
	code   chan int // receives the status when the stream ends
	lines  *bufio.Scanner
}

type pipeWriter struct {
	head http.Header
	code int
	to   *io.PipeWriter
}

func (w *pipeWriter) Header() http.Header              { return w.head }
func (w *pipeWriter) WriteHeader(code int)             { w.code = code }
func (w *pipeWriter) Write(p []byte) (int, error)      { return w.to.Write(p) }
func (w *pipeWriter) Flush()                           {}
func (w *pipeWriter) SetWriteDeadline(time.Time) error { return nil }

func (r *rig) stream() *stream {
	ctx, cancel := context.WithCancel(background)
	out, in := io.Pipe()
	s := &stream{cancel: func() { cancel(); _ = out.Close() }, code: make(chan int, 1), lines: bufio.NewScanner(out)}
	s.lines.Buffer(nil, 1<<20)
	q := r.request("/api/live", nil).WithContext(ctx)
	go func() {
		w := &pipeWriter{http.Header{}, http.StatusOK, in}
		r.console.ServeHTTP(w, q)
		_ = in.Close()
		s.code <- w.code
	}()
	return s
}

// next returns the next event, or false if the stream has ended.
func (s *stream) next(t *testing.T) (e live, ok bool) {
	t.Helper()
	for s.lines.Scan() {
		if data, found := strings.CutPrefix(s.lines.Text(), "data: "); found {
			require.NoError(t, json.Unmarshal([]byte(data), &e))
			return e, true
		}
	}
	return e, false
}

func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		begun := time.Now()
		s := r.stream()
		for i := range 15 {
			e, ok := s.next(t)
			require.True(t, ok)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(begun))
			require.Equal(t, 10*i, e.Overview.Waiting)
			if i > 0 {
				require.Equal(t, 10.0, e.PerSecond.Scheduled)
				require.Zero(t, e.PerSecond.Completed)
			}
			synctest.Wait()
			r.many(string(rune('a'+i)), 10)
		}
		s.cancel()
		require.Equal(t, 200, <-s.code)
		time.Sleep(time.Second)
	})
}

// One goroutine polls for all streams; without streams there is no polling.
func TestOnePollForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		var polls atomic.Int32
		r.engine.set(func(call string) error {
			if call == "stats" {
				polls.Add(1)
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Zero(t, polls.Load())
		a, b := r.stream(), r.stream()
		for range 5 {
			a.next(t)
			b.next(t)
		}
		a.cancel()
		b.cancel()
		<-a.code
		<-b.code
		time.Sleep(time.Minute)
		n := polls.Load()
		require.LessOrEqual(t, n, int32(4*6), "four shards")
		time.Sleep(time.Minute)
		require.Equal(t, n, polls.Load())
		c := r.stream()
		_, ok := c.next(t)
		require.True(t, ok, "it polls again")
		c.cancel()
		<-c.code
		time.Sleep(time.Second)
	})
}

// If the store does not answer, the events say since when, and keep the last values.
func TestLiveWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 3)
		s := r.stream()
		s.next(t)
		synctest.Wait()
		r.engine.set(func(string) error { return errors.New("connection refused") })
		e, _ := s.next(t)
		since := e.Since
		require.Equal(t, "connection refused", e.Error)
		require.Equal(t, time.Now().UTC(), since.UTC())
		require.Equal(t, 3, e.Overview.Waiting)
		e, _ = s.next(t)
		require.Equal(t, since, e.Since)
		synctest.Wait()
		// The first successful poll had to wait for the store, and still the next event comes in
		// time.
		r.engine.set(func(string) error { time.Sleep(300 * time.Millisecond); return nil })
		begun := time.Now()
		e, _ = s.next(t)
		require.Empty(t, e.Error)
		require.True(t, e.Since.IsZero())
		synctest.Wait()
		r.engine.set(nil)
		s.next(t)
		require.Less(t, time.Since(begun), 4*time.Second)
		s.cancel()
		<-s.code
		time.Sleep(time.Second)
	})
}

// The events show the outcomes per second and the lateness of the workers of all processes, and a
// worker that dies as one without heartbeats.
func TestLiveShowsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		handler := func(_ context.Context, f durable.Fired) error {
			if f.Topic == "bad" {
				return durable.Discard(nil)
			}
			return nil
		}
		var stops []func()
		for _, name := range []string{"a", "b"} {
			worker, err := r.timers.NewWorker(handler, durable.WorkerOptions{Name: name, Concurrency: 5})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(background)
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx) }()
			stops = append(stops, func() {
				stop()
				require.NoError(t, <-done)
			})
		}
		var timers []durable.Timer
		for i := range 100 { // one per 100 ms, every tenth a dead letter
			topic := ""
			if i%10 == 0 {
				topic = "bad"
			}
			timers = append(timers, durable.Timer{Key: fmt.Sprint(i), Topic: topic, After: time.Duration(100*i+5050) * time.Millisecond})
		}
		r.schedule(timers...)
		s := r.stream()
		e, _ := s.next(t)
		require.Nil(t, e.PerSecond, "there is no difference yet")
		require.Nil(t, e.Late)
		e, _ = s.next(t)
		require.Equal(t, &lateness{Over: 1}, e.Late, "no run")
		for range 14 {
			e, _ = s.next(t)
		}
		require.InDelta(t, 9, e.PerSecond.Completed, 1.5)
		require.InDelta(t, 1, e.PerSecond.DeadLettered, 0.3)
		require.InDelta(t, 100, e.Late.Runs, 15)
		require.Equal(t, 10.0, e.Late.Over)
		require.Less(t, e.Late.P99, 0.1)
		require.Equal(t, []int{2, 0, 10}, []int{e.Workers.Live, e.Workers.Dead, e.Workers.Slots})
		sum := 0.0
		for i, w := range e.Workers.Items {
			require.True(t, strings.HasPrefix(w.Name, []string{"a-", "b-"}[i]))
			require.True(t, w.Live)
			require.LessOrEqual(t, e.Overview.Now.Sub(w.Heartbeat), time.Second)
			sum += w.PerSecond.Completed
		}
		require.InDelta(t, e.PerSecond.Completed, sum, 1e-9)
		for range 12 {
			e, _ = s.next(t)
		}
		require.Equal(t, &rates{}, e.PerSecond)
		require.Zero(t, e.Late.Runs)
		s.cancel()
		<-s.code
		for _, stop := range stops {
			stop()
		}
		time.Sleep(time.Second)
	})
}

// Each waiting timer is counted once, in the span of its due time.
func TestLiveShowsDueTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		for i, after := range []time.Duration{time.Second, 3 * time.Second, 59 * time.Second, 61 * time.Second, 59 * time.Minute, 61 * time.Minute, 23*time.Hour + time.Minute, 25 * time.Hour} {
			r.schedule(durable.Timer{Key: fmt.Sprint(i), After: after})
		}
		s := r.stream()
		e, _ := s.next(t)
		require.Nil(t, e.Due, "it is being counted")
		from := e.Overview.Now
		e, _ = s.next(t)
		require.Equal(t, from, e.Due.From)
		at := func(counts []int) (filled []string) {
			for i, n := range counts {
				if n > 0 {
					filled = append(filled, fmt.Sprintf("%d at %d of %d", n, i, len(counts)))
				}
			}
			return filled
		}
		require.Equal(t, []string{"1 at 0 of 30", "1 at 1 of 30", "1 at 29 of 30"}, at(e.Due.Minute))
		require.Equal(t, []string{"3 at 0 of 60", "1 at 1 of 60", "1 at 59 of 60"}, at(e.Due.Hour))
		require.Equal(t, []string{"5 at 0 of 24", "1 at 1 of 24", "1 at 23 of 24"}, at(e.Due.Day))
		s.cancel()
		<-s.code
		time.Sleep(time.Second)
	})
}

// A slow store is polled less often. The events still report bulk actions and the engine's time
// each second.
func TestLiveOnSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 20)
		var polls atomic.Int32
		r.engine.set(func(call string) error {
			if call == "stats" {
				polls.Add(1)
				time.Sleep(240 * time.Millisecond) // the poll of the four shards ends before the second event is due
			}
			return nil
		})
		s := r.stream()
		s.next(t)
		call[jobState](r, 200, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting", "prefix": "order-"}})
		synctest.Wait()
		for range 8 {
			e, _ := s.next(t)
			require.Len(t, e.Bulk, 1)
			require.Equal(t, "done", e.Bulk[0].Status)
			require.Equal(t, 20, e.Overview.Waiting, "not polled again")
			require.WithinDuration(t, time.Now(), e.Overview.Now, time.Second, "it is that of a shard, as the poll has found it")
		}
		require.EqualValues(t, 4, polls.Load())
		for range 4 {
			s.next(t)
		}
		synctest.Wait()
		require.EqualValues(t, 8, polls.Load())
		s.cancel()
		<-s.code
		time.Sleep(time.Minute)
	})
}

// Counting the due timers takes at most 5 % of the time, delays no event, and stops with the last
// stream. If a count fails, the previous counts stay.
func TestCountingDueTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.schedule(durable.Timer{Key: "a", After: time.Hour})
		var begun []time.Time
		var failing error
		shard := 0
		r.engine.set(func(call string) error {
			if call == "due" {
				if shard++; shard%r.stats().Shards == 1 || failing != nil {
					begun = append(begun, time.Now())
				}
				time.Sleep(500 * time.Millisecond) // 2 s for the four shards
				return failing
			}
			return nil
		})
		s := r.stream()
		start := time.Now()
		var e live
		for i := range 50 {
			e, _ = s.next(t)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(start), "no event is late")
		}
		require.Equal(t, []time.Duration{0, 40 * time.Second}, []time.Duration{begun[0].Sub(start), begun[1].Sub(start)})
		require.Len(t, begun, 2)
		require.Equal(t, 1, e.Due.Hour[59]+e.Due.Day[1])
		synctest.Wait()
		failing = errors.New("connection refused")
		for range 38 { // until 2 s before another count begins
			e, _ = s.next(t)
		}
		require.Equal(t, "connection refused", e.Due.Error)
		require.Equal(t, 1, e.Due.Hour[59]+e.Due.Day[1])
		s.cancel()
		<-s.code
		counts := len(begun)
		time.Sleep(time.Hour)
		require.Len(t, begun, counts)
	})
}

// If the engine stops counting early, the event says up to which time it has counted.
func TestCountsThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		through := time.Now().Add(10 * time.Minute).UTC()
		r.engine.through = store.MillisAt(through)
		s := r.stream()
		s.next(t)
		e, _ := s.next(t)
		require.Equal(t, through, e.Due.Through)
		s.cancel()
		<-s.code
		time.Sleep(time.Second)
	})
}

func TestLiveShowsBulkActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 20)
		j := call[jobState](r, 200, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}})
		s := r.stream()
		s.next(t)
		e, _ := s.next(t)
		require.Equal(t, j.ID, e.Bulk[0].ID)
		require.Equal(t, 20, e.Bulk[0].Changed)
		s.cancel()
		<-s.code
		time.Sleep(time.Second)
	})
}

func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Token: secret, MaxStreams: 2})
		r.login(secret)
		a, b := r.stream(), r.stream()
		a.next(t)
		b.next(t)
		r.refused(503, "/api/live", nil, "too many pages are open")
		call[object](r, 200, "/api/logout", object{}) // ends the streams of the session
		for _, s := range []*stream{a, b} {
			for ok := true; ok; {
				_, ok = s.next(t)
			}
			<-s.code
		}
		r.cookies = nil
		r.login(secret)
		c := r.stream()
		c.next(t)
		r.console.Close()
		_, ok := c.next(t)
		require.False(t, ok)
		require.Equal(t, 200, <-c.code)
		r.refused(503, "/api/live", nil, "the console is closed")
	})
}
