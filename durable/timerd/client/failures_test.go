package client_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// quick are options of a client with short pauses.
var quick = client.Options{Retries: 2, Backoff: time.Millisecond}

// cutConnection closes a request's connection without a reply.
func cutConnection(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// failFirst fails the first n requests.
func (f *fixture) failFirst(n int, fail func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = nil
	f.fail = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		f.mu.Lock()
		failed := len(f.requests) <= n
		f.mu.Unlock()
		if failed {
			fail(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func cutBefore(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cutConnection(w) }

func cutAfter(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	cutConnection(w)
}

// When the reply to a change is lost, its repetition gets the answer that the package comment
// lists.
func TestConnectionCut(t *testing.T) {
	for name, c := range map[string]struct {
		fail          func(http.ResponseWriter, *http.Request, http.Handler)
		put, repeated client.Result
		cancel        client.Result
	}{
		"before": {cutBefore, client.Created, client.Exists, client.Cancelled},
		"after":  {cutAfter, client.Replaced, client.Exists, client.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
			retrying := newClient(t, f.url, quick)
			f.failFirst(2, c.fail)
			r, err := retrying.Schedule(ctx, timer("a", time.Hour))
			require.NoError(t, err)
			require.Equal(t, client.Receipt{Key: "a", Result: c.put, Due: noon.Add(time.Hour), Repeated: true}, r)
			require.Len(t, f.received(), 3)
			f.failFirst(1, c.fail)
			absent := timer("a", time.Hour)
			absent.IfAbsent = true
			r, err = retrying.Schedule(ctx, absent)
			require.NoError(t, err)
			require.Equal(t, c.repeated, r.Result)
			f.failFirst(1, c.fail)
			r, err = retrying.Cancel(ctx, "a")
			require.NoError(t, err)
			require.Equal(t, client.Receipt{Key: "a", Result: c.cancel, Repeated: true}, r)
			f.failFirst(1, c.fail)
			receipts, err := retrying.ScheduleMany(ctx, []client.Timer{timer("b", time.Hour)})
			require.NoError(t, err)
			require.Equal(t, []client.Receipt{{Key: "b", Result: c.put, Due: noon.Add(time.Hour), Repeated: true}}, receipts)

			f.failFirst(1, c.fail)
			_, err = retrying.Get(ctx, "b")
			require.NoError(t, err)
			f.failFirst(100, c.fail) // net/http itself repeats a GET on a connection that it reuses
			_, err = retrying.Get(ctx, "b")
			require.ErrorIs(t, err, client.ErrUnavailable)
			require.NotErrorIs(t, err, client.ErrUnsure)
			require.Contains(t, err.Error(), "client: GET /timers/b: EOF, after 3 attempts")

			f.failFirst(3, c.fail)
			_, err = retrying.Schedule(ctx, timer("c", time.Hour))
			require.ErrorIs(t, err, client.ErrUnsure)
			require.ErrorIs(t, err, client.ErrUnavailable)
			require.Contains(t, err.Error(), "after 3 attempts; the change may have been made")
		})
	}
}

// A request that creates or runs something again is repeated only if timerd did not carry it out.
func TestNoDoubleCreation(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	_, err := f.PutSchedule(ctx, client.Schedule{Key: "s", Every: time.Hour, Callback: callback})
	require.NoError(t, err)
	retrying := newClient(t, f.url, quick)
	creations := []func() error{
		func() error { _, err := retrying.TriggerSchedule(ctx, "s"); return err },
		func() error { _, err := retrying.BackfillSchedule(ctx, "s", noon, noon); return err },
		func() error { _, err := retrying.Requeue(ctx, "a"); return err },
	}
	for i, create := range creations {
		f.failFirst(1, cutAfter)
		require.ErrorIs(t, create(), client.ErrUnsure)
		require.Len(t, f.received(), 1)
		f.failFirst(1, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		require.ErrorIs(t, create(), client.ErrUnsure)
		require.Len(t, f.received(), 1)
		f.failFirst(1, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusTooManyRequests)
		})
		err := create()
		require.Len(t, f.received(), 2, "%d: %v", i, err)
		require.NotErrorIs(t, err, client.ErrUnsure)
	}
	i, err := f.GetSchedule(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, uint64(2), i.Counts.Triggered)
	require.Equal(t, uint64(2), i.Counts.Backfilled)
}

// A client that cannot connect knows that nothing was changed, and retries.
func TestNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	c := newClient(t, "http://"+l.Addr().String(), quick)
	_, err = c.TriggerSchedule(t.Context(), "a")
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 3, e.Attempts)
	require.ErrorIs(t, err, client.ErrUnavailable)
	require.NotErrorIs(t, err, client.ErrUnsure)
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
}

func TestCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	c := newClient(t, s.URL, quick)
	_, err := c.Cancel(t.Context(), "a")
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 1, e.Attempts)
	require.Contains(t, err.Error(), "certificate")
	require.NotErrorIs(t, err, client.ErrUnsure)
}

// A reply that is not timerd's gives an error that shows it.
func TestForeignReplies(t *testing.T) {
	reply := func(status int, contentType, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	for name, c := range map[string]struct {
		fail     func(http.ResponseWriter, *http.Request, http.Handler)
		want     string
		kind     error
		attempts int
		unsure   bool
	}{
		"html": {
			reply(200, "text/html", "<html>\nLog in</html>"),
			`client: DELETE /timers/a: the reply is not timerd's: 200 OK, "text/html", "<html>\nLog in</html>" (200); the change may have been made`, nil, 1, true,
		},
		"gateway": {
			reply(502, "text/html", "<html>Bad Gateway</html>"),
			`the reply is not timerd's: 502 Bad Gateway, "text/html", "<html>Bad Gateway</html>" (502), after 3 attempts; the change may have been made`, client.ErrUnavailable, 3, true,
		},
		"unauthorized": {reply(401, "text/plain", "who are you"), `"who are you" (401)`, client.ErrUnauthorized, 1, false},
		"forbidden":    {reply(403, "text/plain", ""), `403 Forbidden, "text/plain", empty (403)`, client.ErrForbidden, 1, false},
		"not found":    {reply(404, "text/plain", "404 page not found\n"), `404 Not Found, "text/plain", "404 page not found" (404)`, nil, 1, false},
		"other json":   {reply(200, "application/json", `{"ok":true}`), `"{\"ok\":true}" (200); the change`, nil, 1, true},
		"null":         {reply(200, "application/json", `null`), `"null" (200)`, nil, 1, true},
		"no time":      {reply(200, "application/json", `{"result":"cancelled","due":"soon"}`), `"{\"result\":\"cancelled\",\"due\":\"soon\"}" (200)`, nil, 1, true},
		"half json":    {reply(200, "application/json", `{"key":"a","resu`), `"{\"key\":\"a\",\"resu" (200)`, nil, 1, true},
		"other result": {reply(404, "application/json", `{"error":"no"}`), `"{\"error\":\"no\"}" (404)`, nil, 1, false},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				http.Redirect(w, r, "/login", http.StatusFound)
			},
			`302 Found to "/login"`, nil, 1, false,
		},
		"truncated": {
			func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte(`{"key":"a",`))
			}, "the reply is incomplete: unexpected EOF (200), after 3 attempts; the change may", client.ErrUnavailable, 3, true,
		},
		"huge": {
			func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				chunk := []byte(strings.Repeat(" ", 1<<20))
				for range client.MaxReply>>20 + 4 {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}, "the reply is more than 16777216 bytes long (200); the change", nil, 1, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			retrying := newClient(t, f.url, quick)
			f.failFirst(100, c.fail)
			_, err := retrying.Cancel(ctx, "a")
			require.ErrorContains(t, err, c.want)
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.attempts, e.Attempts)
			for _, kind := range []error{client.ErrUnavailable, client.ErrUnauthorized, client.ErrForbidden, client.ErrNotFound, client.ErrFull, client.ErrInvalid, client.ErrProblem, client.ErrUnconfirmed} {
				require.Equal(t, kind == c.kind, e.Is(kind), kind)
			}
			require.Equal(t, c.unsure, e.Is(client.ErrUnsure))
			require.Len(t, f.received(), c.attempts)
		})
	}
}

func TestStoreErrors(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	retrying := newClient(t, f.url, quick)
	body := `{"error":{"code":"unsure","also":["full"],"message":"it did not answer"},"timers":[{"key":"a","result":"created","due":"2030-01-02T12:00:00.000Z"},{"key":"b","result":"unanswered"}]}`
	answer := func(status int, body string) {
		f.failFirst(100, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	answer(504, body)
	receipts, err := retrying.ScheduleMany(ctx, []client.Timer{timer("a", 0), timer("b", 0)})
	require.ErrorIs(t, err, client.ErrUnsure)
	require.ErrorIs(t, err, client.ErrFull)
	require.EqualError(t, err, "client: POST /timers: it did not answer (504 unsure, full)")
	require.Equal(t, []client.Receipt{{Key: "a", Result: client.Created, Due: noon}, {Key: "b", Result: client.Unanswered}}, receipts)
	require.Len(t, f.received(), 1) // a has its receipt
	_, err = retrying.ScheduleMany(ctx, []client.Timer{timer("a", 0)})
	require.ErrorContains(t, err, "the reply has 2 results, must have 1")

	answer(504, `{"error":{"code":"unsure","message":"it did not answer"}}`)
	_, err = retrying.Schedule(ctx, timer("a", 0))
	require.ErrorIs(t, err, client.ErrUnsure)
	require.Len(t, f.received(), 3)
	answer(504, `{"error":{"code":"unconfirmed","message":"0 of 1 replicas"}}`)
	_, err = retrying.Cancel(ctx, "a")
	require.ErrorIs(t, err, client.ErrUnconfirmed)
	require.NotErrorIs(t, err, client.ErrUnsure)
	require.Len(t, f.received(), 1) // the change was made
	_, err = retrying.Requeue(ctx, "a")
	require.NotErrorIs(t, err, client.ErrUnsure)
	answer(503, `{"error":{"code":"NO_UPSTREAM","message":"of a gateway"}}`)
	_, err = retrying.Cancel(ctx, "a")
	require.ErrorIs(t, err, client.ErrUnsure)
	answer(503, `{"error":{"code":"closed","message":"closed"}}`)
	_, err = retrying.Cancel(ctx, "a")
	require.NotErrorIs(t, err, client.ErrUnsure)
	require.Len(t, f.received(), 3)
	answer(409, `{"error":{"code":"problem","message":"unknown zone"}}`)
	require.ErrorIs(t, retrying.ResumeSchedule(ctx, "a"), client.ErrProblem)
	answer(502, `{"error":{"code":"store","message":"broken"},"count":7}`)
	n, err := retrying.BackfillSchedule(ctx, "a", noon, noon)
	require.Equal(t, 7, n)
	require.ErrorIs(t, err, client.ErrUnavailable)
	require.ErrorIs(t, err, client.ErrUnsure)
	require.Len(t, f.received(), 1)
	answer(200, `{"timers":[],"next":"x"}`)
	n = 0
	for _, err := range retrying.List(ctx, client.Query{}) {
		require.ErrorContains(t, err, "refers to itself")
		n++
	}
	require.Equal(t, 1, n)
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]client.Options{
		"Options.Token is with byte 0x0a at offset 3, must be without white space and control characters": {Token: "abc\n"},
		"Options.Timeout is -1s, must be 1ms to 10m0s":                                                    {Timeout: -time.Second},
		"Options.Timeout is 1h0m0s, must be 1ms to 10m0s":                                                 {Timeout: time.Hour},
		"Options.Retries is -2, must be -1 (NoRetries) to 100":                                            {Retries: -2},
		"Options.Retries is 101, must be -1 (NoRetries) to 100":                                           {Retries: 101},
		"Options.Backoff is 2m0s, must be 1ms to 1m0s":                                                    {Backoff: 2 * time.Minute},
		"Options.MaxBackoff is 1s, must be 2s to 10m0s":                                                   {Backoff: 2 * time.Second, MaxBackoff: time.Second},
	} {
		_, err := client.New("http://127.0.0.1:7717", o)
		require.EqualError(t, err, "client: "+want)
		require.ErrorIs(t, err, client.ErrInvalid)
	}
	for _, url := range []string{"", "127.0.0.1:7717", "ftp://a", "http://", "http://a:secret@c", "http://a:secret@c\n", "http://a?b", "http://a?", "http://a#b", "http://a\n"} {
		_, err := client.New(url, client.Options{})
		require.ErrorContains(t, err, "must be an absolute URL with http or https", url)
		require.NotContains(t, err.Error(), "secret")
	}
}

// The client keeps the path of the base URL, and does not change the caller's HTTP client.
func TestBaseURL(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.failFirst(100, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		http.StripPrefix("/timerd", next).ServeHTTP(w, r)
	})
	var own http.Client
	defer own.CloseIdleConnections()
	c := newClient(t, f.url+"/timerd/", client.Options{HTTPClient: &own})
	r, err := c.Schedule(t.Context(), timer("a/b", time.Hour))
	f.is(client.Created, r, err)
	require.Nil(t, own.CheckRedirect)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Get(ctx, "a/b")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, client.ErrUnavailable)
}
