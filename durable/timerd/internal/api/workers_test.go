package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

func (f *fixture) heartbeat(worker string, ttl time.Duration, status string) {
	f.t.Helper()
	_, err := f.store.Heartbeat(f.t.Context(), store.Heartbeat{Worker: worker, TTL: ttl, Status: []byte(status)})
	require.NoError(f.t, err)
}

// Workers are listed by name, including dead ones and those of other versions.
func TestWorkers(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(200, `{"workers":[]}`, "GET", "/workers", "")
	f.heartbeat("b", time.Second, "")
	f.heartbeat("a", time.Minute, "\xff of another version")
	f.now = f.now.Add(2 * time.Second)
	const numbers = `,"slots":0,"running":0,"preferred_shards":0,"done":0,"retried":0,"snoozed":0,"dead_lettered":0,"cancelled":0}`
	f.expect(200, `{"workers":[{"name":"a","live":true,"heartbeat":"2030-01-02T12:00:00.000Z"`+numbers+
		`,{"name":"b","live":false,"heartbeat":"2030-01-02T12:00:00.000Z"`+numbers+`]}`, "GET", "/workers", "")
	require.NoError(t, f.store.Close())
	status, _ := f.do("GET", "/workers", "")
	require.Equal(t, 503, status)
}

// A worker is shown with all data of its heartbeat, the lateness as quantiles.
func TestWorkerIsShown(t *testing.T) {
	w := durable.WorkerInfo{
		Name: "w", Live: true, Heartbeat: noon, Since: noon.Add(-time.Hour), Slots: 1, Running: 2, Preferred: 3,
		Done: 4, Retried: 5, Snoozed: 6, DeadLettered: 7, Cancelled: 8,
	}
	for range 98 {
		w.Late.Add(time.Second)
	}
	w.Late.Add(30 * time.Second)
	w.Late.Add(30 * time.Second)
	require.Equal(t, wire.Worker{
		Name: "w", Live: true, Heartbeat: "2030-01-02T12:00:00.000Z", Since: "2030-01-02T11:00:00.000Z", Slots: 1, Running: 2, Preferred: 3,
		Done: 4, Retried: 5, Snoozed: 6, DeadLettered: 7, Cancelled: 8, Late: &wire.Late{Count: 100, P50: 1, P99: 32},
	}, workerOf(&w))
}

// A running timer shows its worker, alone and in lists.
func TestTimerShowsItsWorker(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.heartbeat("w", time.Minute, "")
	f.do("PUT", "/timers/a", `{"after":"0s",`+callback+`}`)
	_, reply := f.do("GET", "/timers/a", "")
	require.NotContains(t, reply, "worker")
	f.claim("a")
	for _, path := range []string{"/timers/a", "/timers?state=leased"} {
		_, reply = f.do("GET", path, "")
		require.Contains(t, reply, `"worker":"w"`, path)
	}
	f.heartbeat("w", 0, "")
	_, reply = f.do("GET", "/timers/a", "")
	require.NotContains(t, reply, "worker")
}
