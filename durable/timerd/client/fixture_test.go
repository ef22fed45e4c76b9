package client_test

import (
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

const shards = 4

// fixture is timerd's API on the in-memory engine, whose clock stands at noon, and a client.
type fixture struct {
	*client.Client
	t     *testing.T
	url   string
	now   time.Time
	store store.Store

	mu       sync.Mutex
	requests []*http.Request // received so far
	// fail, if set, replaces the API, which it gets as next.
	fail func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newFixture(t *testing.T, limits store.Limits, token string) *fixture {
	f := &fixture{t: t, now: noon}
	var err error
	f.store, err = memstore.New(memstore.Options{Shards: shards, Limits: limits, Now: func() time.Time { return f.now }})
	require.NoError(t, err)
	timers, err := durable.New(f.store, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(timers.Close)
	handler, err := api.New(api.Options{Timers: timers, Token: token, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, r.Clone(t.Context()))
		fail := f.fail
		f.mu.Unlock()
		if fail != nil {
			fail(w, r, handler)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	f.Client = newClient(t, server.URL, client.Options{Token: token, Retries: client.NoRetries})
	return f
}

func newClient(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(url, o)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// received returns the requests so far.
func (f *fixture) received() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// claim leases the due timer of a key, or of a schedule's key its occurrence, as a worker does.
func (f *fixture) claim(key string) store.Lease {
	f.t.Helper()
	c, _, err := f.store.Claim(f.t.Context(), store.ShardOf(key, shards),
		store.Claim{Worker: "w", Token: store.NewToken("w"), Max: 1, MaxBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 5})
	require.NoError(f.t, err)
	require.Len(f.t, c.Leases, 1)
	return c.Leases[0]
}

func (f *fixture) deadLetter(l store.Lease, text string) {
	f.t.Helper()
	_, _, err := f.store.End(f.t.Context(), store.ShardOf(l.Key, shards), []store.Outcome{{Holder: l.Holder, Kind: store.DeadLetter, Error: text}})
	require.NoError(f.t, err)
}

var callback = client.Callback{URL: "http://example.com/done"}

func timer(key string, after time.Duration) client.Timer {
	return client.Timer{Key: key, After: after, Callback: callback}
}

func collect[T any](t *testing.T, seq iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for v, err := range seq {
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}
