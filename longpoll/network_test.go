package longpoll

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// pipes is a network in memory: its users can run in a bubble, on virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubbles returns the values of http2 to test with. The server of Go 1.25 keeps channels of
// one bubble for the next, which the runtime does not allow; later ones do not.
func inBubbles() []bool {
	if strings.HasPrefix(runtime.Version(), "go1.25") {
		return []bool{false}
	}
	return []bool{false, true}
}

// startInBubble serves over HTTP/1.1 or HTTP/2, and returns the server and a client.
func startInBubble(t *testing.T, h http.Handler, http2 bool, configure func(*http.Server)) (*http.Server, *http.Client) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	srv := &http.Server{Handler: h, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}}
	if configure != nil {
		configure(srv)
	}
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	transport := &http.Transport{DialContext: l.dial, Protocols: protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return srv, &http.Client{Transport: transport}
}

// answer is a client's view of a response.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func get(client *http.Client, path string) answer {
	resp, err := client.Get("http://pipes" + path)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

// A server whose BaseContext ends, and a middleware's timeout, differ from a client's
// disconnect.
func TestContextIsDone(t *testing.T) {
	for _, http2 := range inBubbles() {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFeed(t, purgatory.Options{}), polls(t, Options{RetryAfter: 3 * time.Second})
			base, stop := context.WithCancel(t.Context())
			_, client := startInBubble(t, f.serve(p), http2, func(s *http.Server) {
				s.BaseContext = func(net.Listener) context.Context { return base }
			})
			time.AfterFunc(time.Second, stop)
			got := get(client, "/")
			require.NoError(t, got.err)
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			require.NotEmpty(t, got.header.Get("Retry-After"))
			require.NotEmpty(t, got.body)
			require.Equal(t, Stats{Disconnected: 1}, p.Stats())
		})
		synctest.Test(t, func(t *testing.T) {
			f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
			_, client := startInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				f.serve(p)(w, r.WithContext(ctx))
			}), http2, nil)
			got := get(client, "/")
			require.NoError(t, got.err)
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			require.NotEmpty(t, got.header.Get("Retry-After"))
		})
	}
}

// Shutting a server down answers all polls or, if a part has already been sent, aborts them.
func TestShutdownAnswersAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		http2 bool
		awake time.Duration
	}{
		"HTTP/1.1":             {false, 0},
		"HTTP/1.1, kept awake": {false, time.Second},
		"HTTP/2":               {true, 0},
		"HTTP/2, kept awake":   {true, time.Second},
	} {
		if !slices.Contains(inBubbles(), c.http2) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFeed(t, purgatory.Options{}), polls(t, Options{Wait: time.Hour, KeepAwake: c.awake})
				srv, client := startInBubble(t, f.serve(p), c.http2, func(s *http.Server) { s.ReadHeaderTimeout = time.Minute })
				srv.RegisterOnShutdown(f.p.Close)
				const n = 20
				got := make(chan answer, n)
				for range n {
					go func() { got <- get(client, "/") }()
				}
				time.Sleep(1500 * time.Millisecond)
				require.Equal(t, n, p.Stats().Pending)
				began := time.Now()
				require.NoError(t, srv.Shutdown(t.Context()))
				require.Less(t, time.Since(began), time.Minute, "it would wait for an hour")
				for range n {
					a := <-got
					if c.awake == 0 {
						require.NoError(t, a.err)
						require.Equal(t, http.StatusServiceUnavailable, a.status)
						require.NotEmpty(t, a.header.Get("Retry-After"))
					} else {
						require.Equal(t, http.StatusOK, a.status)
						require.Equal(t, "\n", a.body)
						require.Error(t, a.err, "the answer is incomplete")
					}
				}
				require.Equal(t, Stats{Refused: n}, p.Stats())
			})
		})
	}
}

// Lesson polls 1. A server's WriteTimeout does not end a poll that waits for longer, and
// applies again to its answer, and to the connection's next request.
func TestServersTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
		slow := func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(30 * time.Second)
			_, _ = w.Write(make([]byte, 1<<16))
		}
		mux := http.NewServeMux()
		mux.Handle("/poll", f.serve(p))
		mux.HandleFunc("/slow", slow)
		mux.HandleFunc("/slow-poll", func(w http.ResponseWriter, r *http.Request) {
			if p.Serve(w, r, func(context.Context, time.Duration) error { return nil }) {
				slow(w, r)
			}
		})
		_, client := startInBubble(t, mux, false, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = 10*time.Second, 10*time.Second })
		client.Transport.(*http.Transport).MaxConnsPerHost = 1
		for range 2 {
			got := get(client, "/poll?wait=50")
			require.NoError(t, got.err)
			require.Equal(t, http.StatusNoContent, got.status)
		}
		for _, path := range []string{"/slow", "/slow-poll"} {
			require.Error(t, get(client, path).err, "its time to be written in is over")
		}
	})
}

// Lesson polls 1. If the deadline cannot be moved, a poll ends before it.
func TestServersTimeoutBehindAMiddleware(t *testing.T) {
	for _, http2 := range inBubbles() {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
			mux := http.NewServeMux()
			mux.HandleFunc("/opaque", func(w http.ResponseWriter, r *http.Request) { f.serve(p)(opaque{w}, r) })
			mux.HandleFunc("/open", func(w http.ResponseWriter, r *http.Request) { f.serve(p)(open{w}, r) })
			_, client := startInBubble(t, mux, http2, func(s *http.Server) { s.WriteTimeout = 10 * time.Second })
			for path, want := range map[string]float64{"/opaque?wait=5": 5, "/opaque?wait=50": 7.5, "/open?wait=50": 50} {
				began := time.Now()
				got := get(client, path)
				require.NoError(t, got.err, path)
				require.Equal(t, http.StatusNoContent, got.status, path)
				require.InDelta(t, want, time.Since(began).Seconds(), 0.001, path)
			}
		})
	}
	// If it can be moved, the answer has the whole WriteTimeout, from the end of the poll.
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
		var set []time.Duration
		w := deadlines{hook(func(int) error { return nil }), &set}
		f.add()
		r := httptest.NewRequest(http.MethodGet, "/?wait=5", nil)
		f.serve(p)(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 20 * time.Second})))
		require.Equal(t, []time.Duration{25 * time.Second, 20 * time.Second}, set)
	})
	// The Preference-Applied header names the actual wait.
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Prefer", "wait=30")
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 20 * time.Second}))
		require.Equal(t, "wait=15", serve(f.serve(p), r).Header().Get("Preference-Applied"))
	})
}

// Lesson polls 1.
func TestHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
		_, client := startInBubble(t, f.serve(p), true, func(s *http.Server) {
			s.WriteTimeout, s.ReadTimeout = 5*time.Second, 5*time.Second
		})
		const n = 200
		got := make(chan answer, n)
		for range n {
			go func() { got <- get(client, "/") }()
		}
		time.Sleep(20*time.Second + time.Millisecond) // longer than the server's timeouts
		require.Equal(t, n, p.Stats().Pending)
		f.add()
		for range n {
			a := <-got
			require.NoError(t, a.err)
			require.Equal(t, strings.Repeat("\n", 20)+"1", a.body)
		}
		require.Equal(t, Stats{Ready: n}, p.Stats())
	})
}

// The following tests use a real network, and so real time. None asserts a speed.

// start serves polls on loopback.
func start(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func eventually(t *testing.T, f func() bool, what string) {
	t.Helper()
	require.Eventually(t, f, time.Minute, time.Millisecond, what)
}

func TestHangUp(t *testing.T) {
	f, p := newFeed(t, purgatory.Options{}), polls(t, Options{})
	url := start(t, f.serve(p))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		failed <- err
	}()
	eventually(t, func() bool { return f.p.Len() == 1 }, "the poll waits")
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	eventually(t, func() bool { return p.Stats().Disconnected == 1 }, "it ends")
	require.Zero(t, f.p.Len())
}

// The bytes of KeepAwake are sent while the poll waits.
func TestKeepAwakeIsSent(t *testing.T) {
	f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: 10 * time.Millisecond})
	url := start(t, f.serve(p))
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.Equal(t, 1, p.Stats().Pending, "its status came with the first byte")
	require.Equal(t, 1, p.Len())
	f.add()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "1", strings.TrimLeft(string(b), "\n"))
}
