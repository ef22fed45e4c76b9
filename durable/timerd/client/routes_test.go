package client_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// notForClients are the operations for Prometheus and for client generators, and GET /dead, whose
// timers [client.Client.List] reads by another path.
var notForClients = map[string]bool{"GET /metrics": true, "GET /openapi.json": true, "GET /dead": true}

// routes reads the operations of the API, as patterns of an http.ServeMux, from the OpenAPI
// document, which the API's tests compare with the server.
func routes(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../internal/api/openapi.json")
	require.NoError(t, err)
	var document struct{ Paths map[string]map[string]any }
	require.NoError(t, json.Unmarshal(text, &document))
	patterns := map[string]bool{}
	for path, operations := range document.Paths {
		if strings.HasSuffix(path, "/{key}") {
			path = strings.TrimSuffix(path, "}") + "...}"
		}
		for method := range operations {
			if p := strings.ToUpper(method) + " " + path; method != "parameters" && !notForClients[p] {
				patterns[p] = true
			}
		}
	}
	return patterns
}

func TestEveryRoute(t *testing.T) {
	patterns := routes(t)
	for _, p := range []string{"PUT /timers/{key...}", "GET /schedules", "GET /healthz", "POST /schedules/{key}/backfill"} {
		require.Contains(t, patterns, p) // the test must understand the document
	}

	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	_ = f.Ping(ctx)
	_, _ = f.Workers(ctx)
	_, _ = f.Schedule(ctx, timer("a", 0))
	_, _ = f.ScheduleMany(ctx, []client.Timer{timer("a", 0)})
	_, _ = f.Get(ctx, "a")
	_, _ = f.Reset(ctx, "a", 0)
	_, _ = f.ResetAt(ctx, "a", noon)
	_, _ = f.Cancel(ctx, "a")
	_, _ = f.Requeue(ctx, "a")
	_, _ = f.Purge(ctx, "a")
	collect(t, f.List(ctx, client.Query{}))
	collect(t, f.Schedules(ctx, client.ListOptions{}))
	_, _ = f.PutSchedule(ctx, client.Schedule{Key: "s", Every: time.Hour, Callback: callback})
	_, _ = f.GetSchedule(ctx, "s")
	_ = f.PauseSchedule(ctx, "s", "")
	_ = f.ResumeSchedule(ctx, "s")
	_, _ = f.TriggerSchedule(ctx, "s")
	_, _ = f.BackfillSchedule(ctx, "s", noon, noon)
	_, _ = f.PreviewSchedule(ctx, client.Schedule{Every: time.Hour}, noon, 1)
	_, _ = f.DeleteSchedule(ctx, "s", true)

	for pattern := range patterns {
		mux := http.NewServeMux()
		mux.Handle(pattern, http.NotFoundHandler())
		used := false
		for _, r := range f.received() {
			if _, matched := mux.Handler(r); matched == pattern {
				used = true
			}
		}
		require.True(t, used, "the client has no method for %s", pattern)
	}
}
