package longpoll

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// ownAnswers has Serve give each answer of its own to polls of h, in a bubble.
func ownAnswers(t *testing.T, h func(serve http.HandlerFunc) http.HandlerFunc, see func(t *testing.T, status int, w *httptest.ResponseRecorder)) {
	for name, c := range map[string]struct {
		status int
		query  string
		end    error
	}{
		"expired": {http.StatusNoContent, "", purgatory.ErrExpired},
		"invalid": {http.StatusBadRequest, "?wait=x", nil},
		"limited": {http.StatusTooManyRequests, "", purgatory.ErrExpired},
		"failed":  {http.StatusInternalServerError, "", errors.New("no")},
		"full":    {http.StatusServiceUnavailable, "", purgatory.ErrFull},
		"closed":  {http.StatusServiceUnavailable, "", purgatory.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A KeepAwake that sends nothing, but has the headers set before.
				p := polls(t, Options{KeepAwake: time.Hour, Client: func(*http.Request) string { return "" }, MaxPerClient: 1})
				serve := h(func(w http.ResponseWriter, r *http.Request) {
					require.False(t, p.Serve(w, r, func(context.Context, time.Duration) error {
						time.Sleep(time.Second)
						return c.end
					}))
				})
				var others sync.WaitGroup
				defer others.Wait()
				if name == "limited" {
					others.Go(func() { ask(serve, httptest.NewRequest(http.MethodGet, "/", nil)) })
					synctest.Wait()
				}
				w := ask(serve, httptest.NewRequest(http.MethodGet, "/"+c.query, nil))
				require.Equal(t, c.status, w.Code)
				see(t, c.status, w)
			})
		})
	}
}

// Headers that a handler has set for its answer do not go out with another one.
func TestHeadersAreTheAnswers(t *testing.T) {
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

// compressed is the writer of a middleware that compresses all.
type compressed struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w compressed) Write(b []byte) (int, error) { return w.z.Write(b) }

// An answer's body is in the encoding that it says, whoever does the encoding.
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
				_ = z.Close() // which a 204 does not take
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ownAnswers(t, h, func(t *testing.T, status int, w *httptest.ResponseRecorder) {
				if status == http.StatusNoContent || w.Body.Len() == 0 {
					return // nothing, in any encoding
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
