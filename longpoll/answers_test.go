package longpoll

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// ownAnswers makes Serve give each of its own answers to polls of h, in a bubble.
func ownAnswers(t *testing.T, h func(handler http.HandlerFunc) http.HandlerFunc, check func(t *testing.T, status int, w *httptest.ResponseRecorder)) {
	for name, c := range map[string]struct {
		status int
		query  string
		end    error
	}{
		"expired":   {http.StatusNoContent, "", purgatory.ErrExpired},
		"invalid":   {http.StatusBadRequest, "?wait=x", nil},
		"limited":   {http.StatusTooManyRequests, "", purgatory.ErrExpired},
		"failed":    {http.StatusInternalServerError, "", errors.New("no")},
		"full":      {http.StatusServiceUnavailable, "", purgatory.ErrFull},
		"closed":    {http.StatusServiceUnavailable, "", purgatory.ErrClosed},
		"cancelled": {http.StatusServiceUnavailable, "", purgatory.ErrCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A KeepAwake that sends no byte, but sets the headers early.
				p := polls(t, Options{KeepAwake: time.Hour, Client: func(*http.Request) string { return "" }, MaxPerClient: 1, OnError: func(*http.Request, error) {}})
				handler := h(func(w http.ResponseWriter, r *http.Request) {
					require.False(t, p.Serve(w, r, func(context.Context, time.Duration) error {
						time.Sleep(time.Second)
						return c.end
					}))
				})
				var others sync.WaitGroup
				defer others.Wait()
				if name == "limited" {
					others.Go(func() { serve(handler, httptest.NewRequest(http.MethodGet, "/", nil)) })
					synctest.Wait()
				}
				w := serve(handler, httptest.NewRequest(http.MethodGet, "/"+c.query, nil))
				require.Equal(t, c.status, w.Code)
				check(t, c.status, w)
			})
		})
	}
}

// Without KeepAwake no byte is sent while a poll waits.
func TestNoByteWithoutKeepAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := hook(func(int) error { return io.ErrClosedPipe }) // an error ends any sending
		require.True(t, polls(t, Options{}).Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(context.Context, time.Duration) error {
			time.Sleep(time.Hour)
			return nil
		}))
		require.Zero(t, *w.n, "bytes are sent")
	})
}

// The error of a 500 goes to OnError, and not to the client.
func TestOnError(t *testing.T) {
	f := newFeed(t, purgatory.Options{})
	var errs []error
	var requests []*http.Request
	var p *Polls
	p = polls(t, Options{OnError: func(r *http.Request, err error) {
		require.Equal(t, Stats{Failed: 1}, p.Stats(), "it waits no more")
		requests, errs = append(requests, r), append(errs, err)
	}})
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/feed", nil)
	noKeys := func(ctx context.Context, timeout time.Duration) error {
		return f.p.Await(ctx, timeout, func() bool { return false })
	}
	require.False(t, p.Serve(w, r, noKeys))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, []*http.Request{r}, requests)
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "keys")
	require.NotContains(t, w.Body.String(), "keys")
	require.Equal(t, Stats{Failed: 1}, p.Stats())

	// By default it is logged.
	var log strings.Builder
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	require.False(t, polls(t, Options{}).Serve(httptest.NewRecorder(), r, noKeys))
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "method=GET path=/feed")
	require.Contains(t, log.String(), errs[0].Error())
}

// Cancelling a key's polls is not a failure: their clients retry.
func TestCancelled(t *testing.T) {
	moved := errors.New("moved")
	for name, c := range map[string]struct {
		cause  error
		status int
		want   Stats
		failed []error
	}{
		"without a cause": {nil, http.StatusServiceUnavailable, Stats{Cancelled: 1}, nil},
		"that wraps it":   {fmt.Errorf("moved: %w", purgatory.ErrCancelled), http.StatusServiceUnavailable, Stats{Cancelled: 1}, nil},
		"with another":    {moved, http.StatusInternalServerError, Stats{Failed: 1}, []error{moved}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFeed(t, purgatory.Options{})
				var failed []error
				p := polls(t, Options{OnError: func(_ *http.Request, err error) { failed = append(failed, err) }})
				time.AfterFunc(time.Second, func() { f.p.CancelForKey("feed", c.cause) })
				w := serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil))
				require.Equal(t, c.status, w.Code)
				require.Equal(t, c.status == http.StatusServiceUnavailable, w.Header().Get("Retry-After") != "")
				require.Empty(t, w.Header().Get("Connection"))
				require.Equal(t, c.want, p.Stats())
				require.Equal(t, c.failed, failed)
			})
		})
	}
}

// Default counts the polls of Wait.
func TestDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{})
		before, began := Default().Stats().Expired, time.Now()
		w := httptest.NewRecorder()
		require.False(t, Wait(w, httptest.NewRequest(http.MethodGet, "/?wait=0", nil), f.p, func() bool { return false }, "feed"))
		require.Equal(t, before+1, Default().Stats().Expired)
		require.Zero(t, time.Since(began))
	})
}

// Headers that a handler has set for its answer are not sent with another answer.
func TestHandlerHeadersAreRemoved(t *testing.T) {
	ownAnswers(t, func(serve http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for name, value := range map[string]string{
				"Cache-Control": "max-age=60", "ETag": `"1"`, "Expires": "Mon, 01 Jan 2035 00:00:00 GMT", "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
				"Content-Type": "application/json", "Content-Length": "2", "Vary": "Cookie", "X-Request-Id": "7",
			} {
				w.Header().Set(name, value)
			}
			serve(w, r)
		}
	}, func(t *testing.T, status int, w *httptest.ResponseRecorder) {
		h := w.Result().Header
		require.Equal(t, []string{"no-store"}, h["Cache-Control"])
		for _, name := range []string{"ETag", "Expires", "Last-Modified", "Content-Length"} {
			require.Empty(t, h.Get(name), name)
		}
		if status == http.StatusNoContent {
			require.Empty(t, h.Get("Content-Type"))
		} else {
			require.Equal(t, "text/plain; charset=utf-8", h.Get("Content-Type"))
			require.NotEmpty(t, w.Body.String())
		}
		require.Equal(t, "Cookie", h.Get("Vary"))
		require.Equal(t, "7", h.Get("X-Request-Id"))
	})
}

// compressed is the writer of a middleware that compresses all output.
type compressed struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w compressed) Write(b []byte) (int, error) { return w.z.Write(b) }

// An answer's body has the encoding that its header names, whether a middleware or the handler
// encodes it.
func TestAnswersAreInTheirEncoding(t *testing.T) {
	for name, h := range map[string]func(http.HandlerFunc) http.HandlerFunc{
		"handler": func(serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				serve(w, r)
			}
		},
		"middleware": func(serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				serve(compressed{w, z}, r)
				_ = z.Close() // fails for a 204
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ownAnswers(t, h, func(t *testing.T, status int, w *httptest.ResponseRecorder) {
				if status == http.StatusNoContent || w.Body.Len() == 0 {
					return // an empty body, in any encoding
				}
				require.Equal(t, "gzip", w.Result().Header.Get("Content-Encoding"))
				z, err := gzip.NewReader(w.Body)
				require.NoError(t, err)
				_, err = io.ReadAll(z)
				require.NoError(t, err)
			})
		})
	}
}
