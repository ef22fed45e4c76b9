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
)

// stream is the client of a stream in a test's bubble: it reads the events from a pipe.
type stream struct {
	cancel context.CancelFunc
	code   chan int // gets the status when the stream has ended
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

// next returns the next event; false: the stream has ended.
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
				require.Equal(t, 10.0, e.PerSecond.Waiting)
			}
			synctest.Wait()
			r.many(string(rune('a'+i)), 10)
		}
		s.cancel()
		require.Equal(t, 200, <-s.code)
		time.Sleep(time.Second)
	})
}

// One goroutine polls for all streams, and none without.
func TestOnePollForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		var polls atomic.Int32
		r.engine.set(func(call string) error { polls.Add(1); return nil })
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

// A store that does not answer is shown, with since when; the last values stay.
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
		r.engine.set(nil)
		e, _ = s.next(t)
		require.Empty(t, e.Error)
		require.True(t, e.Since.IsZero())
		s.cancel()
		<-s.code
		time.Sleep(time.Second)
	})
}

// Workers of the process show how runs end, per second.
func TestLiveShowsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		worker, err := r.timers.NewWorker(func(_ context.Context, f durable.Fired) error {
			if f.Topic == "bad" {
				return durable.Discard(nil)
			}
			return nil
		}, durable.WorkerOptions{Name: "w"})
		require.NoError(t, err)
		r.console, err = New(r.timers, Options{Workers: []*durable.Worker{worker}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(background)
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		for i := range 100 { // one per 100 ms, every tenth a dead letter
			topic := ""
			if i%10 == 0 {
				topic = "bad"
			}
			r.schedule(durable.Timer{Key: fmt.Sprint(i), Topic: topic, After: time.Duration(100*i+5050) * time.Millisecond})
		}
		s := r.stream()
		e, _ := s.next(t)
		require.Nil(t, e.Workers[0].PerSecond, "there is no difference yet")
		for range 15 {
			e, _ = s.next(t)
		}
		require.True(t, strings.HasPrefix(e.Workers[0].Name, "w-"))
		require.InDelta(t, 9, e.Workers[0].PerSecond.Completed, 0.5)
		require.InDelta(t, 1, e.Workers[0].PerSecond.DeadLettered, 0.2)
		require.Equal(t, 1, e.Workers[0].Members)
		s.cancel()
		<-s.code
		stop()
		require.NoError(t, <-done)
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
