package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// The client shows workers, and the timers that they run, as timerd does.
func TestWorkers(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	workers, err := f.Workers(ctx)
	require.NoError(t, err)
	require.Empty(t, workers)
	_, err = f.store.Heartbeat(ctx, store.Heartbeat{Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	workers, err = f.Workers(ctx)
	require.NoError(t, err)
	require.Equal(t, []client.WorkerInfo{{Name: "w", Live: true, Heartbeat: noon}}, workers)

	_, err = f.Schedule(ctx, timer("a", 0))
	require.NoError(t, err)
	i, err := f.Get(ctx, "a")
	require.NoError(t, err)
	require.Empty(t, i.Worker)
	f.claim("a")
	i, err = f.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "w", i.Worker)
}

// WorkerInfo has all fields of the API.
func TestWorkersAreComplete(t *testing.T) {
	reply := `{"workers":[{"name":"w","live":true,"heartbeat":"2030-01-02T12:00:00.000Z","since":"2030-01-02T11:00:00.000Z",
		"slots":1,"running":2,"preferred_shards":3,"done":4,"retried":5,"snoozed":6,"dead_lettered":7,"cancelled":8,
		"late":{"count":9,"p50_seconds":0.5,"p99_seconds":2}}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(reply))
	}))
	defer server.Close()
	c := newClient(t, server.URL, client.Options{Retries: client.NoRetries})
	workers, err := c.Workers(context.Background())
	require.NoError(t, err)
	require.Equal(t, []client.WorkerInfo{{
		Name: "w", Live: true, Heartbeat: noon, Since: noon.Add(-time.Hour), Slots: 1, Running: 2, PreferredShards: 3,
		Done: 4, Retried: 5, Snoozed: 6, DeadLettered: 7, Cancelled: 8, Late: client.Lateness{Count: 9, P50: .5, P99: 2},
	}}, workers)
	reply = `{}`
	_, err = c.Workers(context.Background())
	require.Error(t, err, "a reply of another server")
}
