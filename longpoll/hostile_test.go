package longpoll

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// faultyContext is a context with one replaced method: Value, which finds the server, or Done.
type faultyContext struct {
	context.Context
	value, done func()
}

func (c faultyContext) Value(key any) any {
	if key == http.ServerContextKey {
		c.value()
	}
	return c.Context.Value(key)
}

func (c faultyContext) Done() <-chan struct{} {
	c.done()
	return c.Context.Done()
}

// unwritable is a writer whose methods fail.
type unwritable struct {
	http.ResponseWriter
	fail func()
}

func (w unwritable) Header() http.Header {
	w.fail()
	return http.Header{}
}

func (w unwritable) SetWriteDeadline(time.Time) error {
	w.fail()
	return nil
}

// A context, a writer or a function that panics, or ends its goroutine, at any time leaves no
// poll counted as pending, in total or for its client.
func TestNoPollIsLeftBehind(t *testing.T) {
	nothing := func() {}
	server := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{WriteTimeout: time.Hour})
	for how, fail := range map[string]func(){"panics": func() { panic("no") }, "ends its goroutine": runtime.Goexit} {
		for name, c := range map[string]struct {
			ctx   context.Context
			w     http.ResponseWriter
			await func()
		}{
			"await":           {context.Background(), nil, fail},
			"Value":           {faultyContext{server, fail, nothing}, nil, nothing},
			"Done":            {faultyContext{server, nothing, fail}, nil, nothing},
			"the header":      {context.Background(), unwritable{httptest.NewRecorder(), fail}, nothing},
			"the deadline":    {server, unwritable{httptest.NewRecorder(), fail}, nothing},
			"Options.OnError": {context.Background(), nil, nothing},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := polls(t, Options{KeepAwake: time.Second, Client: func(*http.Request) string { return "" }, MaxPerClient: 1, OnError: func(*http.Request, error) {
						if name == "Options.OnError" {
							fail()
						}
					}})
					if c.w == nil {
						c.w = httptest.NewRecorder()
					}
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.Header.Set("Prefer", "wait=600")
					returned := false
					go func() {
						defer func() { _ = recover() }()
						p.Serve(c.w, r.WithContext(c.ctx), func(context.Context, time.Duration) error {
							c.await()
							return context.DeadlineExceeded // no purgatory returns it
						})
						returned = true
					}()
					synctest.Wait()
					require.False(t, returned)
					require.Equal(t, Stats{Failed: 1}, p.Stats())
				})
			})
		}
	}
}

// A WriteTimeout that is effectively unbounded does not bound the answer.
func TestServersTimeoutIsLong(t *testing.T) {
	for _, http2 := range inBubbles() {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
			_, client := startInBubble(t, f.serve(p), http2, func(s *http.Server) { s.WriteTimeout = math.MaxInt64 })
			got := get(client, "/?wait=1")
			require.NoError(t, got.err)
			require.Equal(t, http.StatusNoContent, got.status)
		})
	}
}

// The zero Polls panics at its first use: its polls would not wait.
func TestZeroPolls(t *testing.T) {
	var p Polls
	const want = "longpoll: the zero Polls is not usable, make one with New"
	require.PanicsWithValue(t, want, func() {
		p.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), func(context.Context, time.Duration) error { return nil })
	})
	require.PanicsWithValue(t, want, func() { p.Stats() })
}
