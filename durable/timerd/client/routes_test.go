package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// notForClients are routes for Prometheus, for browsers and for generators of clients.
var notForClients = regexp.MustCompile(`^GET /(metrics|openapi\.json|\{\$\}|console.*)?$`)

// routes reads the patterns of the API from its source: an http.ServeMux does not list them. The
// keys of a map of handlers are patterns, or verbs that end the path of a schedule.
func routes(t *testing.T) map[string]bool {
	patterns := map[string]bool{}
	pattern := regexp.MustCompile(`^(GET|PUT|POST|PATCH|DELETE) /`)
	text := func(n ast.Node) string {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			s, err := strconv.Unquote(l.Value)
			require.NoError(t, err)
			return s
		}
		return ""
	}
	files, err := filepath.Glob("../internal/api/*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s := text(n); pattern.MatchString(s) && !notForClients.MatchString(s) {
				patterns[s] = true
			}
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				value, isHandler := kv.Value.(*ast.SelectorExpr)
				if verb := text(kv.Key); isHandler && strings.HasSuffix(value.Sel.Name, "Schedule") && verb != "" && !pattern.MatchString(verb) {
					patterns["POST /schedules/{key}/"+verb] = true
				}
			}
			return true
		})
	}
	return patterns
}

// The client has a method for each route of the API.
func TestEveryRoute(t *testing.T) {
	patterns := routes(t)
	for _, p := range []string{"PUT /timers/{key...}", "GET /schedules", "GET /healthz", "POST /schedules/{key}/backfill"} {
		require.Contains(t, patterns, p) // else the test does not understand the source
	}
	patterns["POST /schedules/preview"] = true // the source has it in two parts

	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	_ = f.Ping(ctx)
	_, _ = f.Schedule(ctx, timer("a", 0))
	_, _ = f.ScheduleMany(ctx, []client.Timer{timer("a", 0)})
	_, _ = f.Get(ctx, "a")
	_, _ = f.Reset(ctx, "a", 0)
	_, _ = f.ResetAt(ctx, "a", noon)
	_, _ = f.Cancel(ctx, "a")
	_, _ = f.Requeue(ctx, "a")
	_, _ = f.Purge(ctx, "a")
	collect(t, f.Scan(ctx, client.ListOptions{}))
	collect(t, f.Dead(ctx, client.ListOptions{}))
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
		for _, r := range f.arrived() {
			if _, matched := mux.Handler(r); matched == pattern {
				used = true
			}
		}
		require.True(t, used, "the client has no method for %s", pattern)
	}
}
