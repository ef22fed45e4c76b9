package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func fired(t *testing.T, c Call) durable.Fired {
	t.Helper()
	b, err := Encode(c)
	require.NoError(t, err)
	return durable.Fired{
		Key: "order/7", ID: durable.ID{1, 2, 3}, Body: b, Attempt: 2, Fence: 1 << 60,
		Due: time.Date(2030, 1, 2, 3, 4, 5, 6_000_000, time.UTC),
	}
}

func local(t *testing.T, o Options) *Handler {
	t.Helper()
	o.Allow = loopback
	h, err := New(o)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// pipes serves f over in-memory connections, whatever the address, so that a test can run in a
// synctest bubble.
func pipes(t *testing.T, h *Handler, f http.HandlerFunc) {
	conns := make(chan net.Conn)
	ctx, stop := context.WithCancel(context.Background())
	h.dial = func(dial context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case conns <- server:
			return client, nil
		case <-dial.Done():
			return nil, dial.Err()
		}
	}
	server := &http.Server{Handler: f}
	go server.Serve(&pipeListener{conns: conns, ctx: ctx})
	t.Cleanup(func() {
		h.Close()
		stop()
		server.Close()
	})
}

type pipeListener struct {
	conns chan net.Conn
	ctx   context.Context
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	secret := []byte("0123456789abcdef")
	h := local(t, Options{Secret: secret})
	require.NoError(t, h.Handle(t.Context(), fired(t, Call{
		Method: "PUT", URL: server.URL + "/path?q=1", Headers: map[string]string{"x-trace": "abc"}, Body: []byte("hello"),
	})))
	require.Equal(t, "PUT", got.Method)
	require.Equal(t, "/path?q=1", got.RequestURI)
	require.Equal(t, "hello", string(body))
	for name, want := range map[string]string{
		"X-Trace": "abc", "Content-Type": "application/octet-stream", "User-Agent": "limbo-webhook/1",
		"Idempotency-Key": "01020300000000000000000000000000", "Limbo-Timer": "order%2F7",
		"Limbo-Due": "2030-01-02T03:04:05.006Z", "Limbo-Attempt": "2", "Limbo-Fence": "1152921504606846976",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
	require.NoError(t, Verify(secret, got.Header, body, time.Now(), time.Minute))
	require.Equal(t, Stats{Calls: 1, Done: 1}, h.Stats())

	h = local(t, Options{UserAgent: "mine"})
	require.NoError(t, h.Handle(t.Context(), fired(t, Call{URL: server.URL, Headers: map[string]string{"Content-Type": "text/plain"}, Body: []byte("a")})))
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "mine", got.UserAgent())
	require.Equal(t, "text/plain", got.Header.Get("Content-Type"))
	require.Empty(t, got.Header.Get("Limbo-Signature"))
	require.NoError(t, h.Handle(t.Context(), fired(t, Call{URL: server.URL})))
	require.Empty(t, got.Header.Values("Content-Type")) // there is no body
}

// The call of an occurrence names its schedule and its planned time; other timers' calls do not,
// and cannot set these headers.
func TestRequestOfAnOccurrence(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	h := local(t, Options{})
	f := fired(t, Call{URL: server.URL})
	require.NoError(t, h.Handle(t.Context(), f))
	require.NotContains(t, got, "Limbo-Schedule")
	require.NotContains(t, got, "Limbo-Planned")

	f.Key, f.Schedule = "order/7\x001893553445000", "order/7"
	f.Planned = time.Date(2030, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600))
	require.NoError(t, h.Handle(t.Context(), f))
	for name, want := range map[string]string{
		"Limbo-Timer": "order%2F7%001893553445000", "Limbo-Schedule": "order%2F7",
		"Limbo-Planned": "2030-01-02T03:04:05.000Z", "Limbo-Due": "2030-01-02T03:04:05.006Z",
	} {
		require.Equal(t, []string{want}, got.Values(name), name)
	}
	for _, name := range []string{"Limbo-Schedule", "limbo-planned"} {
		_, err := Encode(Call{URL: server.URL, Headers: map[string]string{name: "a"}})
		require.ErrorContains(t, err, "must be names that the handler does not set itself")
	}
}

func TestVerify(t *testing.T) {
	secret, now := []byte("0123456789abcdef"), time.Unix(1_700_000_000, 0)
	require.Equal(t, "t=1700000000,v1=6d8cfdd2a3689fd6e22ca74aeabd594b2186dff90a37261ba76f51bd8a5638b2", Sign(secret, now, "id", []byte("body")))
	header := func(signature string) http.Header {
		return http.Header{HeaderID: {"id"}, HeaderSignature: {signature}}
	}
	good := Sign(secret, now, "id", []byte("body"))
	require.NoError(t, Verify(secret, header(good), []byte("body"), now.Add(time.Minute), time.Minute))
	require.NoError(t, Verify(secret, header(good), []byte("body"), now.Add(-time.Minute), time.Minute))
	for name, err := range map[string]error{
		"body":    Verify(secret, header(good), []byte("bodY"), now, time.Minute),
		"ID":      Verify(secret, http.Header{HeaderID: {"other"}, HeaderSignature: {good}}, []byte("body"), now, time.Minute),
		"secret":  Verify([]byte("another secret!!"), header(good), []byte("body"), now, time.Minute),
		"time":    Verify(secret, header(strings.Replace(good, "t=17", "t=18", 1)), []byte("body"), now, time.Hour*1e6),
		"late":    Verify(secret, header(good), []byte("body"), now.Add(61*time.Second), time.Minute),
		"early":   Verify(secret, header(good), []byte("body"), now.Add(-61*time.Second), time.Minute),
		"absent":  Verify(secret, http.Header{}, []byte("body"), now, time.Minute),
		"garbage": Verify(secret, header("t=x,v1=zz"), []byte("body"), now, time.Minute),
		"short":   Verify(secret, header(good[:len(good)-2]), []byte("body"), now, time.Minute),
	} {
		require.ErrorIs(t, err, ErrSignature, name)
	}
	for _, malformed := range []string{"", "t=1700000000", "t=x,v1=00", "t=1700000000,v1=zz"} {
		require.ErrorContains(t, Verify(secret, header(malformed), []byte("body"), now, time.Minute), "no Limbo-Signature header of the form t=…,v1=…")
	}
}

// Case 28: 4xx are final except 408, 425 and 429; redirects are not followed, and are final.
func TestStatuses(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", other.URL)
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			_, _ = io.WriteString(w, " because \n")
		}
	}))
	defer server.Close()
	h := local(t, Options{})
	host := strings.TrimPrefix(server.URL, "http://")
	for status = range 600 {
		var want error
		failed := &StatusError{Call: "POST " + host, Status: status, Reply: "because"}
		switch {
		case status < 200:
			continue // not an answer
		case status < 300:
		case status == 408, status == 425, status == 429, status >= 500:
			want = failed
		default:
			if status == 304 {
				failed.Reply = ""
			}
			want = durable.Discard(failed)
		}
		require.Equal(t, want, h.Handle(t.Context(), fired(t, Call{URL: server.URL})), status)
	}
	require.Zero(t, elsewhere.Load())
	require.Equal(t, Stats{Calls: 400, Done: 100, Retried: 103, Discarded: 197}, h.Stats())
	require.EqualError(t, &StatusError{Call: "POST a", Status: 404, Reply: "because"}, `webhook: POST a: 404 Not Found: "because"`)
	require.EqualError(t, &StatusError{Call: "POST a", Status: 404}, `webhook: POST a: 404 Not Found`)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"7", "", 7 * time.Second},
		{" 7 ", "", 7 * time.Second},
		{"60", "", time.Minute},
		{"61", "", time.Minute},
		{"99999999999999999999999", "", time.Minute},
		{"-7", "", 0},
		{"7.5", "", 0},
		{"soon", "", 0},
		{at(7 * time.Second), "", 7 * time.Second},
		{at(-7 * time.Second), "", 0},
		{at(time.Hour), "", time.Minute},
		{at(7 * time.Second), at(2 * time.Second), 5 * time.Second}, // its clock is ahead of ours
		{at(7 * time.Second), "yesterday", 7 * time.Second},
	} {
		header := http.Header{"Retry-After": {c.value}, "Date": {c.date}}
		require.Equal(t, c.want, retryAfter(header, now, time.Minute), "%q at %q", c.value, c.date)
	}
}

func TestRetryAfterReachesTheWorker(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Path[1:])
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	h := local(t, Options{MaxRetryAfter: time.Minute})
	failed := &StatusError{Call: "POST " + strings.TrimPrefix(server.URL, "http://"), Status: 503}
	require.Equal(t, durable.RetryAfter(30*time.Second, failed), h.Handle(t.Context(), fired(t, Call{URL: server.URL + "/30"})))
	require.Equal(t, durable.RetryAfter(time.Minute, failed), h.Handle(t.Context(), fired(t, Call{URL: server.URL + "/3000"})))
	require.Equal(t, failed, h.Handle(t.Context(), fired(t, Call{URL: server.URL + "/0"})))
}

// Case 28: only the start of an endless reply is read, whether it succeeds or fails.
func TestEndlessReply(t *testing.T) {
	var wrote atomic.Int64
	ended := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		for {
			n, err := w.Write(bytes.Repeat([]byte("x"), 1<<16))
			wrote.Add(int64(n))
			if err != nil {
				ended <- struct{}{}
				return
			}
		}
	}))
	defer server.Close()
	h := local(t, Options{MaxReply: 1000})
	require.NoError(t, h.Handle(t.Context(), fired(t, Call{URL: server.URL})))
	<-ended // the connection was closed
	err := h.Handle(t.Context(), fired(t, Call{URL: server.URL + "/fail"}))
	var failed *StatusError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, strings.Repeat("x", snippet), failed.Reply)
	<-ended
	require.Less(t, wrote.Load(), int64(64<<20)) // the capacity of socket buffers
}

// Endless headers do not exhaust memory, and the call is retried.
func TestEndlessHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 100 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
		}
	}))
	defer server.Close()
	h := local(t, Options{})
	err := h.Handle(t.Context(), fired(t, Call{URL: server.URL}))
	require.ErrorContains(t, err, "headers exceeded 65536 bytes")
	require.NotEqual(t, fmt.Sprintf("%T", durable.Discard(nil)), fmt.Sprintf("%T", err))
}

// Case 28, and 7: a call that hangs ends with its timeout, and is retried; so does one whose
// answer drips.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := local(t, Options{Timeout: 5 * time.Second})
		pipes(t, h, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/drip" {
				w.WriteHeader(http.StatusInternalServerError)
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Second)
				}
			}
			<-r.Context().Done()
		})
		for _, c := range []struct {
			call Call
			took time.Duration
			err  string
		}{
			{Call{URL: "http://a"}, 5 * time.Second, "webhook: POST a:80: no answer within 5s"},
			{Call{URL: "http://a", Timeout: 2 * time.Second}, 2 * time.Second, "webhook: POST a:80: no answer within 2s"},
			{Call{URL: "http://a/drip", Timeout: 4500 * time.Millisecond}, 4500 * time.Millisecond, `webhook: POST a:80: 500 Internal Server Error: "xxxxx"`},
		} {
			began := time.Now()
			err := h.Handle(t.Context(), fired(t, c.call))
			require.EqualError(t, err, c.err)
			require.Equal(t, c.took, time.Since(began))
		}
		require.EqualValues(t, 3, h.Stats().Retried)
		time.Sleep(2 * time.Second) // the last handler sees that the client does not read
	})
}

// A call whose context ends while it waits for a slot is not made.
func TestContextEndsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := local(t, Options{PerHost: 1, HostWait: 5 * time.Second})
		pipes(t, h, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		go h.Handle(t.Context(), fired(t, Call{URL: "http://a"}))
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("lease lost")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		require.Equal(t, cause, h.Handle(ctx, fired(t, Call{URL: "http://a"})))
		require.Equal(t, Stats{Calls: 1, Hosts: 1}, h.Stats())
		time.Sleep(time.Minute)
	})
}

// When the worker ends the context, the call ends with its cause.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := local(t, Options{})
		pipes(t, h, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("lease lost")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		began := time.Now()
		require.ErrorIs(t, h.Handle(ctx, fired(t, Call{URL: "http://a"})), cause)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// Case 28: one slow host does not take all slots: while its calls hang, those to another host
// complete at once, and calls beyond the bound are postponed.
func TestSlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := local(t, Options{PerHost: 2, HostWait: time.Second, Timeout: 10 * time.Second})
		pipes(t, h, func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "slow" {
				<-r.Context().Done()
			}
		})
		var wg sync.WaitGroup
		var timedOut, postponed atomic.Int32
		for range 10 {
			wg.Go(func() {
				err := h.Handle(t.Context(), fired(t, Call{URL: "http://slow"}))
				if strings.Contains(err.Error(), "no answer") {
					timedOut.Add(1)
				} else {
					require.IsType(t, durable.Snooze(0), err)
					postponed.Add(1)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 6, postponed.Load()) // 2 have a slot, 2 wait for one
		began := time.Now()
		for range 10 {
			require.NoError(t, h.Handle(t.Context(), fired(t, Call{URL: "http://quick"})))
		}
		require.Zero(t, time.Since(began))
		wg.Wait()
		require.EqualValues(t, 2, timedOut.Load())
		require.EqualValues(t, 8, postponed.Load())
		require.Equal(t, Stats{Calls: 12, Done: 10, Retried: 2, Postponed: 8}, h.Stats())
	})
}

func TestBodyThatIsNoCallIsFinal(t *testing.T) {
	h := local(t, Options{})
	_, decode := Decode([]byte("hello"))
	require.Equal(t, durable.Discard(decode), h.Handle(t.Context(), durable.Fired{Body: []byte("hello")}))
	require.Equal(t, Stats{Discarded: 1}, h.Stats())
}

func TestConnectionRefusedIsRetried(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	h := local(t, Options{})
	err := h.Handle(t.Context(), fired(t, Call{URL: server.URL}))
	require.ErrorContains(t, err, "webhook: POST 127.0.0.1:")
	require.NotEqual(t, fmt.Sprintf("%T", durable.Discard(nil)), fmt.Sprintf("%T", err))
}

// All spellings of an address count as one host.
func TestHostOf(t *testing.T) {
	for want, raws := range map[string][]string{
		"example.com:80": {
			"http://example.com", "http://Example.COM", "HTTP://example.com.", "http://example.com:", "http://example.com:80/x",
			"http://example.com:080?a", "http://example.com.:00080", "http://eXample.com:" + strings.Repeat("0", 100) + "80", "https://example.com:80",
		},
		"example.com:443":  {"https://example.com", "https://example.com.:0443"},
		"example.com:8080": {"http://example.com:8080/x", "http://example.com:08080"},
		"_a-1.b2.0x1g:80":  {"http://_a-1.b2.0x1g"},
		"8.8.8.8:80": {
			"http://8.8.8.8", "http://8.8.8.8.", "http://[::ffff:8.8.8.8]", "http://[::ffff:808:808]", "http://[::FFFF:0808:0808]:080",
			"http://[0:0:0:0:0:ffff:8.8.8.8]", "http://[64:ff9b::8.8.8.8]", "http://[64:ff9b::808:808]", "http://[2002:808:808::1]",
		},
		"[::1]:80": {"http://[::1]", "http://[0:0:0:0:0:0:0:1]", "http://[::0001]:080", "http://[::0.0.0.1]"},
		"[2a00::a]:443": {
			"https://[2a00::a]", "https://[2A00::A]:443", "https://[2a00:0:0::000a]", "https://[2a00::0.0.0.10]",
		},
		"[fe80::1]:80": {"http://[fe80::1]", "http://[fe80::1%25eth0]", "http://[FE80::1%251]"},
	} {
		for _, raw := range raws {
			u, err := parseURL(raw)
			require.NoError(t, err, raw)
			require.Equal(t, want, hostOf(u), raw)
		}
	}
}

func TestSpellingsShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := local(t, Options{PerHost: 1, HostWait: -1})
		ended := receives(t, h, silent)
		ctx, cancel := context.WithCancel(t.Context())
		first := fired(t, Call{URL: "http://8.8.8.8"})
		ends := make(chan error, 1)
		go func() { ends <- h.Handle(ctx, first) }()
		synctest.Wait()
		for _, url := range []string{"http://8.8.8.8:080", "http://8.8.8.8.", "http://[::ffff:808:808]", "https://8.8.8.8:80"} {
			require.IsType(t, durable.Snooze(0), h.Handle(t.Context(), fired(t, Call{URL: url})), url)
		}
		cancel()
		require.ErrorIs(t, <-ends, context.Canceled)
		ended()
		require.Equal(t, Stats{Calls: 1, Retried: 1, Postponed: 4}, h.Stats())
	})
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"Options.Secret is 3 bytes long, must be absent, or at least 16 bytes long": {Secret: []byte("abc")},
		"Options.Timeout is -1ns, must be 1ms to 10m0s, or 0 for 10s":               {Timeout: -1},
		"Options.Timeout is 11m0s, must be":                                         {Timeout: 11 * time.Minute},
		"Options.PerHost is -1, must be 1 to 10000, or 0 for 8":                     {PerHost: -1},
		"Options.HostWait is 11s, must be at most 10s, negative for none":           {HostWait: 11 * time.Second},
		"Options.MaxSnooze is 1ms, must be 100ms to 1h, or 0 for 10s":               {MaxSnooze: time.Millisecond},
		"Options.MaxRetryAfter is 1ms, must be 1s to 720h, or 0 for 1h":             {MaxRetryAfter: time.Millisecond},
		"Options.MaxReply is -1, must be 1 to 1048576, or 0 for 4096":               {MaxReply: -1},
		`Options.UserAgent is "a\n", must be without control characters`:            {UserAgent: "a\n"},
		"Options.Allow is invalid Prefix, must be valid prefixes":                   {Allow: []netip.Prefix{{}}},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
	for _, o := range []Options{
		{Secret: make([]byte, 16), Timeout: time.Millisecond, PerHost: 1, HostWait: -time.Hour, MaxSnooze: 100 * time.Millisecond, MaxRetryAfter: time.Second, MaxReply: 1},
		{Timeout: MaxTimeout, PerHost: 10_000, HostWait: 10 * time.Second, MaxSnooze: time.Hour, MaxRetryAfter: 30 * 24 * time.Hour, MaxReply: 1 << 20, UserAgent: "a\tb"},
	} {
		_, err := New(o)
		require.NoError(t, err)
	}
	for want, o := range map[string]Options{
		"Options.Secret is 1":   {Secret: make([]byte, 1)},
		"Options.Secret is 15":  {Secret: make([]byte, 15)},
		"Options.Timeout":       {Timeout: MaxTimeout + 1},
		"Options.PerHost":       {PerHost: 10_001},
		"Options.HostWait":      {HostWait: 10*time.Second + 1},
		"Options.MaxSnooze":     {MaxSnooze: time.Hour + 1},
		"Options.MaxRetryAfter": {MaxRetryAfter: 30*24*time.Hour + 1},
		"Options.MaxReply":      {MaxReply: 1<<20 + 1},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}
