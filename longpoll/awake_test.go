package longpoll

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// serveAborted makes one poll that must be aborted, and returns the part of its answer that was
// sent.
func serveAborted(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, r) })
	return w
}

func TestKeepAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{})
		p := polls(t, Options{KeepAwake: time.Second})
		began := time.Now()
		resp := serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/?wait=3.5", nil))
		require.InDelta(t, 3.5, time.Since(began).Seconds(), 0.01)
		require.Equal(t, http.StatusOK, resp.Code, "it is sent with the first byte")
		require.Equal(t, "\n\n\n", resp.Body.String())
		require.True(t, resp.Flushed)
		time.AfterFunc(2500*time.Millisecond, f.add)
		require.Equal(t, "\n\n1", serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil)).Body.String())
		require.Equal(t, http.StatusOK, serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/?wait=0", nil)).Code)

		// No byte is sent when the time has passed, nor before the first one is due.
		f = newFeed(t, purgatory.Options{})
		require.Equal(t, "\n\n", serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/?wait=3", nil)).Body.String())
		for _, wait := range []string{"0.5", "1"} {
			require.Equal(t, http.StatusNoContent, serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/?wait="+wait, nil)).Code)
		}
		// The Preference-Applied header is sent with the first byte.
		f = newFeed(t, purgatory.Options{})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Prefer", "wait=3")
		require.Equal(t, "wait=3", serve(f.serve(p), r).Result().Header.Get("Preference-Applied"))
		// No byte is sent to a request whose answer has no body.
		require.Equal(t, http.StatusNoContent, serve(f.serve(p), httptest.NewRequest(http.MethodHead, "/?wait=3", nil)).Code)
		require.Equal(t, Stats{Ready: 2, Expired: 6}, p.Stats())

		// The context of await ends when Serve returns.
		var ctx context.Context
		require.True(t, p.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), func(given context.Context, _ time.Duration) error {
			ctx = given
			return nil
		}))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}

// A timer that has fired while its poll ended sends no byte.
func TestKeepAliveAfterItsEnd(t *testing.T) {
	w := httptest.NewRecorder()
	k := keepAlive{exchange: &exchange{w: w, control: http.NewResponseController(w)}, interval: time.Hour}
	k.start()
	k.stop()
	k.tick()
	require.False(t, w.Flushed)
	require.Empty(t, w.Body.String())
}

// Only the handler uses the writer once Serve has returned.
func TestKeepAwakeReleasesTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
		time.AfterFunc(1500*time.Millisecond, f.add) // while a byte is being written
		writing := false
		w := hook(func(int) error {
			writing = true
			time.Sleep(2 * time.Second)
			writing = false
			return nil
		})
		require.True(t, p.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(ctx context.Context, timeout time.Duration) error {
			return f.p.Await(ctx, timeout, func() bool { return f.n.Load() > 0 }, "feed")
		}))
		require.False(t, writing, "Serve has returned, and the writer is in use")
		time.Sleep(time.Minute)
		require.Equal(t, "\n", w.Body.String(), "nothing is sent any more")
	})
}

// Once a byte has been sent, a poll that is neither ready nor expired is aborted.
func TestKeepAwakeAbortsTheResponse(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(f *feed, cancel context.CancelFunc)
		want Stats
	}{
		"shutdown": {func(f *feed, _ context.CancelFunc) { f.p.Close() }, Stats{Refused: 1}},
		"context":  {func(_ *feed, cancel context.CancelFunc) { cancel() }, Stats{Disconnected: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(1500*time.Millisecond, func() { c.end(f, cancel) })
				w := serveAborted(t, f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				require.Equal(t, "\n", w.Body.String())
				require.Equal(t, c.want, p.Stats())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var failed []error
		p := polls(t, Options{KeepAwake: time.Second, OnError: func(_ *http.Request, err error) { failed = append(failed, err) }})
		for _, err := range []error{io.ErrUnexpectedEOF, purgatory.ErrFull, purgatory.ErrCancelled} {
			w := serveAborted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p.Serve(w, r, func(context.Context, time.Duration) error {
					time.Sleep(2500 * time.Millisecond)
					return err
				})
			}), httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, "\n\n", w.Body.String())
		}
		require.Equal(t, Stats{Failed: 1, Refused: 1, Cancelled: 1}, p.Stats())
		require.Equal(t, []error{io.ErrUnexpectedEOF}, failed)
	})
}

// hooked is a writer that calls a function before its n-th write; the function may fail.
type hooked struct {
	*httptest.ResponseRecorder
	hook func(n int) error
	n    *int
}

func hook(f func(n int) error) hooked { return hooked{httptest.NewRecorder(), f, new(int)} }

func (w hooked) Write(b []byte) (int, error) {
	*w.n++
	if err := w.hook(*w.n); err != nil {
		return 0, err
	}
	return w.ResponseRecorder.Write(b)
}

func (w hooked) WriteHeader(int) { panic("a status behind a part of the body") }

// deadlines is a writer that records the deadlines that are set, as durations from now; 0:
// none.
type deadlines struct {
	hooked
	set *[]time.Duration
}

func (w deadlines) SetWriteDeadline(at time.Time) error {
	until := time.Duration(0)
	if !at.IsZero() {
		until = time.Until(at)
	}
	*w.set = append(*w.set, until)
	return nil
}

// A deadline is set for the byte that is being written when a poll ends. It stays if the write
// fails: the client may accept the rest as slowly.
func TestKeepAwakeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []time.Duration
	}{
		"written": {nil, []time.Duration{lastByteTimeout, 0}},
		"failed":  {io.ErrClosedPipe, []time.Duration{lastByteTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
				var set []time.Duration
				w := deadlines{hook(func(int) error { time.Sleep(2 * time.Second); return c.err }), &set}
				func() {
					defer func() { _ = recover() }()
					f.serve(p)(w, httptest.NewRequest(http.MethodGet, "/?wait=2", nil))
				}()
				require.Equal(t, c.want, set)
			})
		})
	}
}

// unflushable is a writer that cannot flush.
type unflushable struct{ hooked }

func (unflushable) FlushError() error { return io.ErrClosedPipe }

// If the status cannot be sent, no byte is written.
func TestKeepAwakeCannotFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
		w := unflushable{hook(func(int) error { return nil })}
		began := time.Now()
		require.PanicsWithValue(t, http.ErrAbortHandler, func() {
			f.serve(p)(w, httptest.NewRequest(http.MethodGet, "/?wait=5", nil))
		})
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, *w.n)
		require.Equal(t, Stats{Disconnected: 1}, p.Stats())
	})
}

// A poll keeps its capacity in the purgatory while bytes are sent: a poll that arrives then
// does not displace it.
func TestKeepAwakeKeepsItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{MaxPending: 1})
		p, others := polls(t, Options{KeepAwake: time.Second}), polls(t, Options{})
		w := hook(func(int) error {
			require.Equal(t, http.StatusServiceUnavailable, serve(f.serve(others), httptest.NewRequest(http.MethodGet, "/", nil)).Code)
			return nil
		})
		began, awaits := time.Now(), 0
		require.False(t, p.Serve(w, httptest.NewRequest(http.MethodGet, "/?wait=10", nil), func(ctx context.Context, timeout time.Duration) error {
			awaits++
			return f.p.Await(ctx, timeout, func() bool { return f.n.Load() > 0 }, "feed")
		}))
		require.InDelta(t, 10, time.Since(began).Seconds(), 0.001)
		require.Equal(t, strings.Repeat("\n", 9), w.Body.String())
		require.Equal(t, 1, awaits)
		require.Equal(t, Stats{Expired: 1}, p.Stats())
		require.Equal(t, Stats{Refused: 9}, others.Stats())
	})
}

// opaque is the writer of a middleware, without an Unwrap method.
type opaque struct{ http.ResponseWriter }

// open is a writer with an Unwrap method.
type open struct{ http.ResponseWriter }

func (w open) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// With a writer that buffers all output, a poll waits without bytes, and its status is
// determined at the end.
func TestKeepAwakeNeedsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
		hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(p)(opaque{w}, r) })
		began := time.Now()
		resp := serve(hidden, httptest.NewRequest(http.MethodGet, "/?wait=5", nil))
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.001)
		require.Equal(t, http.StatusNoContent, resp.Code)
		require.Empty(t, resp.Body)

		through := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(p)(open{w}, r) })
		require.Equal(t, "\n\n", serve(through, httptest.NewRequest(http.MethodGet, "/?wait=2.5", nil)).Body.String())

		time.AfterFunc(2500*time.Millisecond, f.p.Close)
		resp = serve(hidden, httptest.NewRequest(http.MethodGet, "/?wait=5", nil))
		require.Equal(t, http.StatusServiceUnavailable, resp.Code)
		require.NotEmpty(t, resp.Header().Get("Retry-After"))
		require.Equal(t, Stats{Expired: 2, Refused: 1}, p.Stats())
	})
}

// A byte that cannot be written ends the poll, on the handler's goroutine, whatever the writer
// does.
func TestKeepAwakeCannotWrite(t *testing.T) {
	for name, c := range map[string]struct {
		write func() error
		value any
		want  Stats
	}{
		"error":    {func() error { return io.ErrClosedPipe }, http.ErrAbortHandler, Stats{Disconnected: 1}},
		"panic":    {func() error { panic("no") }, "no", Stats{Failed: 1}},
		"Goexit":   {func() error { runtime.Goexit(); return nil }, http.ErrAbortHandler, Stats{Disconnected: 1}},
		"gives up": {func() error { return errors.Join(http.ErrNotSupported) }, nil, Stats{Expired: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
				w := hook(func(n int) error {
					if n == 2 {
						return c.write()
					}
					return nil
				})
				began := time.Now()
				var value any
				func() {
					defer func() { value = recover() }()
					f.serve(p)(w, httptest.NewRequest(http.MethodGet, "/?wait=5", nil))
				}()
				require.Equal(t, c.value, value)
				if waited := 2 * time.Second; c.value != nil {
					require.Equal(t, waited, time.Since(began))
				}
				require.Equal(t, "\n", w.Body.String())
				require.Equal(t, c.want, p.Stats())
				require.Zero(t, f.p.Len())
			})
		})
	}
}

// A write that fails after the timeout aborts the response, which would look complete
// otherwise.
func TestKeepAwakeFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
		w := hook(func(int) error {
			time.Sleep(2 * time.Second)
			return io.ErrClosedPipe
		})
		require.PanicsWithValue(t, http.ErrAbortHandler, func() {
			f.serve(p)(w, httptest.NewRequest(http.MethodGet, "/?wait=2", nil))
		})
		require.Equal(t, Stats{Disconnected: 1}, p.Stats())
	})
}
