package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
)

var background = context.Background()

// faulty is an engine whose calls fail if fail says so.
type faulty struct {
	store.Store
	mu   sync.Mutex
	fail func(call string) error // guarded by mu; nil: none

	through store.Millis // guarded by mu; the Through that CountDue reports
}

func (f *faulty) set(fail func(call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) err(call string) error {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(call)
}

func (f *faulty) Stats(ctx context.Context, shard int) (store.Stats, error) {
	if err := f.err("stats"); err != nil {
		return store.Stats{}, err
	}
	return f.Store.Stats(ctx, shard)
}

func (f *faulty) CountDue(ctx context.Context, shard int, edges []store.Millis) (store.DueCounts, error) {
	if err := f.err("due"); err != nil {
		return store.DueCounts{}, err
	}
	counts, err := f.Store.CountDue(ctx, shard, edges)
	f.mu.Lock()
	defer f.mu.Unlock()
	counts.Through = f.through
	return counts, err
}

func (f *faulty) List(ctx context.Context, shard int, q store.Query) (store.Page, error) {
	if err := f.err("list"); err != nil {
		return store.Page{}, err
	}
	return f.Store.List(ctx, shard, q)
}

func (f *faulty) Horizons(ctx context.Context, shards []int) ([]store.Horizon, error) {
	if err := f.err("look"); err != nil {
		return nil, err
	}
	return f.Store.Horizons(ctx, shards)
}

func (f *faulty) Cancel(ctx context.Context, shard int, keys []string) ([]store.CancelResult, error) {
	if err := f.err("cancel"); err != nil {
		return nil, err
	}
	return f.Store.Cancel(ctx, shard, keys)
}

// logs is a log buffer that is safe for concurrent use.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rig is a console on an engine in memory.
type rig struct {
	*testing.T
	engine  *faulty
	timers  *durable.Timers
	console *Console
	log     *logs
	cookies []*http.Cookie
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	engine, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	r := &rig{T: t, engine: &faulty{Store: engine}, log: &logs{}}
	o.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	r.timers, err = durable.New(r.engine, durable.Options{})
	require.NoError(t, err)
	r.console, err = New(r.timers, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.console.Close()
		require.NoError(t, r.timers.Shutdown(background))
		require.NoError(t, engine.Close())
	})
	return r
}

// request returns a request as the page sends it; body is nil for a GET.
func (r *rig) request(target string, body any) *http.Request {
	r.Helper()
	q := httptest.NewRequest(http.MethodGet, target, nil)
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(r, err)
		q = httptest.NewRequest(http.MethodPost, target, bytes.NewReader(text))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set(marker, "1")
	}
	q.Host = "127.0.0.1:7717"
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, cookie := range r.cookies {
		q.AddCookie(cookie)
	}
	return q
}

func (r *rig) do(q *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.console.ServeHTTP(w, q)
	return w
}

// call sends a request, checks the reply's status and decodes the reply.
func call[T any](r *rig, status int, target string, body any) (v T) {
	r.Helper()
	w := r.do(r.request(target, body))
	require.Equal(r, status, w.Code, w.Body.String())
	require.NoError(r, json.Unmarshal(w.Body.Bytes(), &v), w.Body.String())
	return v
}

func (r *rig) refused(status int, target string, body any, why string) {
	r.Helper()
	require.Contains(r, call[failure](r, status, target, body).Message, why)
}

func key64(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

func keys64(keys ...string) (all []string) {
	for _, key := range keys {
		all = append(all, key64(key))
	}
	return all
}

type object = map[string]any

func (r *rig) schedule(timers ...durable.Timer) {
	r.Helper()
	_, err := r.timers.ScheduleMany(background, timers)
	require.NoError(r, err)
}

// many schedules n timers that are due in an hour.
func (r *rig) many(prefix string, n int) {
	r.Helper()
	timers := make([]durable.Timer, n)
	for i := range timers {
		timers[i] = durable.Timer{Key: fmt.Sprintf("%s%04d", prefix, i), Topic: "orders", After: time.Hour}
	}
	r.schedule(timers...)
}

// dead makes dead letters.
func (r *rig) dead(message string, keys ...string) {
	r.Helper()
	timers := make([]durable.Timer, len(keys))
	for i, key := range keys {
		timers[i] = durable.Timer{Key: key, Topic: "mails", Body: []byte(`{"to":"a@example.org"}`)}
	}
	r.schedule(timers...)
	ctx, stop := context.WithCancel(background)
	var left sync.WaitGroup
	left.Add(len(keys))
	worker, err := r.timers.NewWorker(func(_ context.Context, f durable.Fired) error {
		return durable.Discard(fmt.Errorf("%s: %s", f.Key, message))
	}, durable.WorkerOptions{OnDead: func(durable.Fired, error) { left.Done() }})
	require.NoError(r, err)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	left.Wait()
	stop()
	require.NoError(r, <-done)
}

func (r *rig) stats() durable.Stats {
	r.Helper()
	s, err := r.timers.Stats(background)
	require.NoError(r, err)
	return s
}

func repeat(text string, n int) string { return strings.Repeat(text, n) }
