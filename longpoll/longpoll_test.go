package longpoll

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// feed is the object that polls wait for: entries of one key.
type feed struct {
	p *purgatory.Purgatory[string]
	n atomic.Int64
}

func newFeed(t testing.TB, o purgatory.Options) *feed {
	t.Helper()
	p, err := purgatory.New[string](o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Shutdown(context.Background()))
		require.Zero(t, p.Len())
	})
	return &feed{p: p}
}

func (f *feed) add() {
	f.n.Add(1)
	f.p.CheckAndComplete("feed")
}

// serve makes a poll wait for an entry, and answers with the number of entries.
func (f *feed) serve(polls *Polls) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if polls.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
			return f.p.Await(ctx, timeout, func() bool { return f.n.Load() > 0 }, "feed")
		}) {
			_, _ = fmt.Fprint(w, f.n.Load())
		}
	}
}

func polls(t testing.TB, o Options) *Polls {
	t.Helper()
	p, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, p.Stats().Pending)
		require.Zero(t, p.Stats().Clients)
	})
	return p
}

// serve makes one poll, without a network.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAnsweredWhenReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
		time.AfterFunc(time.Second, f.add)
		began := time.Now()
		resp := serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusOK, resp.Code)
		require.Equal(t, "1", resp.Body.String())
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, Stats{Ready: 1}, p.Stats())

		// At once, because it is already ready.
		resp = serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/?wait=0", nil))
		require.Equal(t, http.StatusOK, resp.Code)
	})
}

func TestWaitIsServeByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if Wait(w, r, f.p, func() bool { return f.n.Load() > 0 }, "feed") {
				_, _ = fmt.Fprint(w, f.n.Load())
			}
		})
		began := time.Now()
		require.Equal(t, http.StatusNoContent, serve(h, httptest.NewRequest(http.MethodGet, "/", nil)).Code)
		require.InDelta(t, 30, time.Since(began).Seconds(), 0.001)
		time.AfterFunc(time.Second, f.add)
		require.Equal(t, "1", serve(h, httptest.NewRequest(http.MethodGet, "/", nil)).Body.String())
	})
}

func TestWaitGoals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		th, err := purgatory.NewThreshold(func(string) int64 { return n.Load() }, purgatory.Options{})
		require.NoError(t, err)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if WaitGoals(w, r, th, purgatory.All, purgatory.Goal[string, int64]{Key: "feed", Number: 2}) {
				_, _ = fmt.Fprint(w, n.Load())
			}
		})
		require.Equal(t, http.StatusNoContent, serve(h, httptest.NewRequest(http.MethodGet, "/?wait=1", nil)).Code)
		for i := range 2 {
			time.AfterFunc(time.Duration(i+1)*time.Second, func() { n.Add(1); th.Advance("feed", n.Load()) })
		}
		began := time.Now()
		require.Equal(t, "2", serve(h, httptest.NewRequest(http.MethodGet, "/", nil)).Body.String())
		require.Equal(t, 2*time.Second, time.Since(began))
		require.NoError(t, th.Shutdown(t.Context()))
	})
}

func TestRequestedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{})
		p := polls(t, Options{Wait: 10 * time.Second, MaxWait: 20 * time.Second, Query: "for"})
		for _, c := range []struct {
			prefer  []string
			query   string
			want    time.Duration
			applied string
		}{
			{nil, "", 10 * time.Second, ""},
			{[]string{"wait=3"}, "", 3 * time.Second, "wait=3"},
			{[]string{"wait=0"}, "", 0, "wait=0"},
			{[]string{"wait=100"}, "", 20 * time.Second, "wait=20"},
			{[]string{"wait=99999999999999999999999"}, "", 20 * time.Second, "wait=20"},
			{[]string{`respond-async, Wait = "7"; x=1`}, "", 7 * time.Second, "wait=7"},
			{[]string{"handling=lenient", "wait=4, wait=5"}, "", 4 * time.Second, "wait=4"},
			{[]string{"wait"}, "", 10 * time.Second, ""},
			{[]string{"wait=-3"}, "", 10 * time.Second, ""},
			{[]string{"waiting=3"}, "", 10 * time.Second, ""},
			{nil, "?for=2", 2 * time.Second, ""},
			{nil, "?for=0.25", 250 * time.Millisecond, ""},
			{nil, "?for=500ms", 500 * time.Millisecond, ""},
			{nil, "?for=1h", 20 * time.Second, ""},
			{nil, "?for=1e300", 20 * time.Second, ""},
			{nil, "?for=", 10 * time.Second, ""},
			{nil, "?wait=1", 10 * time.Second, ""},
			{[]string{"wait=3"}, "?for=2", 2 * time.Second, ""},
		} {
			r := httptest.NewRequest(http.MethodGet, "/"+c.query, nil)
			r.Header["Prefer"] = c.prefer
			began := time.Now()
			resp := serve(f.serve(p), r)
			waited := time.Since(began)
			require.Equal(t, http.StatusNoContent, resp.Code, c)
			require.GreaterOrEqual(t, waited, c.want, c)
			require.Less(t, waited, c.want+time.Millisecond, c)
			require.Equal(t, c.applied, resp.Header().Get("Preference-Applied"), c)
		}
		for _, bad := range []string{"soon", "-1", "-1s", "NaN", "1 2", "5x", strings.Repeat("9", 10_000) + "x", "<script>"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL.RawQuery = "for=" + strings.ReplaceAll(bad, " ", "+")
			resp := serve(f.serve(p), r)
			require.Equal(t, http.StatusBadRequest, resp.Code, bad)
			text := resp.Body.String()
			require.Contains(t, text, "for is ")
			require.Contains(t, text, "must be seconds")
			require.Less(t, len(text), 150)
			require.Contains(t, resp.Header().Get("Content-Type"), "text/plain")
		}
		require.Equal(t, uint64(8), p.Stats().Invalid)
	})
}

func TestFullAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{MaxPending: 1})
		p := polls(t, Options{RetryAfter: 5 * time.Second})
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil)) }()
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Pending)
		seen := map[int]bool{}
		for range 200 {
			resp := serve(f.serve(p), httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, http.StatusServiceUnavailable, resp.Code)
			require.Empty(t, resp.Header().Get("Connection"))
			after, err := strconv.Atoi(resp.Header().Get("Retry-After"))
			require.NoError(t, err)
			seen[after] = true
		}
		require.Equal(t, map[int]bool{5: true, 6: true, 7: true, 8: true, 9: true, 10: true}, seen)
		f.p.Close()
		resp := <-first
		require.Equal(t, http.StatusServiceUnavailable, resp.Code)
		require.Equal(t, "close", resp.Header().Get("Connection"))
		require.NotEmpty(t, resp.Header().Get("Retry-After"))
		require.Equal(t, uint64(201), p.Stats().Refused)
	})
}

func TestClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{})
		p := polls(t, Options{Client: func(r *http.Request) string { return r.Header.Get("Client") }, MaxPerClient: 2})
		from := func(client string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Client", client)
			return r
		}
		var wg sync.WaitGroup
		for _, client := range []string{"a", "a", "b"} {
			wg.Go(func() { require.Equal(t, "1", serve(f.serve(p), from(client)).Body.String()) })
		}
		synctest.Wait()
		require.Equal(t, 2, p.Stats().Clients)
		resp := serve(f.serve(p), from("a"))
		require.Equal(t, http.StatusTooManyRequests, resp.Code)
		require.NotEmpty(t, resp.Header().Get("Retry-After"))
		wg.Go(func() { require.Equal(t, "1", serve(f.serve(p), from("b")).Body.String()) })
		synctest.Wait()
		// One of two polls leaves, and another can take its capacity.
		ctx, hangUp := context.WithCancel(t.Context())
		for range 2 {
			go serve(f.serve(p), from("c").WithContext(ctx))
			synctest.Wait()
			ctx = t.Context()
		}
		hangUp()
		synctest.Wait()
		wg.Go(func() { require.Equal(t, "1", serve(f.serve(p), from("c")).Body.String()) })
		synctest.Wait()
		require.Equal(t, Stats{Pending: 6, Clients: 3, Disconnected: 1, Limited: 1}, p.Stats())
		require.Equal(t, http.StatusTooManyRequests, serve(f.serve(p), from("c")).Code)
		f.add()
		wg.Wait()
		synctest.Wait()
		require.Equal(t, Stats{Ready: 6, Disconnected: 1, Limited: 2}, p.Stats())
	})
}

func TestCheckPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, purgatory.Options{OnPanic: func(purgatory.Panic) {}})
		var failed []error
		p := polls(t, Options{OnError: func(_ *http.Request, err error) { failed = append(failed, err) }})
		w := httptest.NewRecorder()
		require.False(t, p.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(ctx context.Context, timeout time.Duration) error {
			return f.p.Await(ctx, timeout, func() bool { panic("no") }, "feed")
		}))
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.NotContains(t, w.Body.String(), "no\n", "the panic is not the client's")
		require.PanicsWithValue(t, "here", func() {
			p.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(context.Context, time.Duration) error { panic("here") })
		})
		require.Equal(t, Stats{Failed: 2}, p.Stats())
		require.Len(t, failed, 1)
		require.ErrorIs(t, failed[0], purgatory.ErrFailed)
	})
}

func TestOptions(t *testing.T) {
	client := func(*http.Request) string { return "" }
	for want, o := range map[string]Options{
		"Options.Wait is 1ns, must be from 1ms to 24h0m0s":                                     {Wait: 1},
		"Options.Wait is 48h0m0s, must be from 1ms to 24h0m0s":                                 {Wait: 48 * time.Hour},
		"Options.MaxWait is 1s, must be from 30s to 24h0m0s":                                   {MaxWait: time.Second},
		"Options.KeepAwake is 1ms, must be 0 or at least 10ms":                                 {KeepAwake: time.Millisecond},
		"Options.KeepAwake is -1ns, must be 0 or at least 10ms":                                {KeepAwake: -1},
		"Options.RetryAfter is 1ms, must be from 1s to 1h0m0s":                                 {RetryAfter: time.Millisecond},
		"Options.MaxPerClient is 0, must be at least 1 with Options.Client, and 0 without it":  {Client: client},
		"Options.MaxPerClient is 3, must be at least 1 with Options.Client, and 0 without it":  {MaxPerClient: 3},
		"Options.MaxPerClient is -1, must be at least 1 with Options.Client, and 0 without it": {Client: client, MaxPerClient: -1},
		"Options.KeepAwake is 2562047h47m16.854775807s, must be from 0s to 24h0m0s":            {KeepAwake: math.MaxInt64},
		"Options.MaxWait is -1ns, must be from 30s to 24h0m0s":                                 {MaxWait: -1},
	} {
		_, err := New(o)
		require.EqualError(t, err, "longpoll: "+want)
	}
	p := polls(t, Options{Wait: time.Hour})
	require.Equal(t, time.Hour, p.options.MaxWait)
}

func FuzzRequestedWait(f *testing.F) {
	for _, s := range []string{"wait=3", `x, wait="4";y`, "wait=,", "=", "wait=18446744073709551616"} {
		f.Add(s, "wait=1.5")
	}
	p, err := New(Options{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, prefer, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Prefer", prefer)
		r.URL.RawQuery = query
		wait, _, err := p.requestedWait(r)
		if err == nil && (wait < 0 || wait > p.options.MaxWait) {
			t.Fatalf("%v", wait)
		}
	})
}
