package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

// receives serves connections in memory with raw, whatever the address. It returns a
// function that waits until all of them have ended.
func receives(t *testing.T, h *Handler, raw func(net.Conn)) (ended func()) {
	var mu sync.Mutex
	var conns []chan struct{}
	h.dial = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		done := make(chan struct{})
		mu.Lock()
		conns = append(conns, done)
		mu.Unlock()
		t.Cleanup(func() { server.Close() })
		go func() {
			defer close(done)
			defer server.Close()
			raw(server)
		}()
		return client, nil
	}
	t.Cleanup(h.Close)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			<-c
		}
	}
}

// handle makes a call, and fails the test if that does not end.
func handle(ctx context.Context, t *testing.T, h *Handler, c Call) (took time.Duration, err error) {
	t.Helper()
	began, ends := time.Now(), make(chan error, 1)
	go func() { ends <- h.Handle(ctx, fired(t, c)) }()
	select {
	case err = <-ends:
	case <-time.After(time.Hour):
		t.Fatal("the call holds its slot for an hour")
	}
	return time.Since(began), err
}

// asked reads a request, to the end of its body.
func asked(c net.Conn) *bufio.Reader {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return r
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return r
		}
		return r
	}
}

// until writes the same again and again, pausing in between, until the other side has
// closed the connection.
func until(c net.Conn, text string, pause time.Duration) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// silent waits until the other side has closed the connection.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// deaf does not read.
func deaf(net.Conn) { time.Sleep(time.Minute) }

// says returns a receiver that reads a request, writes text, and goes on with rest.
func says(text string, rest func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		asked(c)
		if _, err := io.WriteString(c, text); err == nil {
			rest(c)
		}
	}
}

func repeats(text string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) { until(c, text, pause) }
}

// half is a connection whose other side answers a request with text, and closes its half.
type half struct {
	net.Conn
	text  io.Reader
	asked chan struct{}
}

func (c half) Read(b []byte) (int, error) {
	<-c.asked
	return c.text.Read(b)
}

const (
	dead    = "dead letter"
	retry   = "tried again"
	done    = "done"
	chunked = "Transfer-Encoding: chunked\r\n\r\n"
)

// No answer of a receiver holds a call beyond its timeout, or beyond the end of its
// context, and its connection is closed then.
func TestHostileReceivers(t *testing.T) {
	for name, c := range map[string]struct {
		raw   func(net.Conn)
		want  string
		hangs bool // the call ends with its timeout, otherwise at once
		says  string
	}{
		"silence":                      {raw: says("", silent), want: retry, hangs: true, says: "no answer within"},
		"a request that is not read":   {raw: deaf, want: retry, hangs: true, says: "no answer within"},
		"half a request is read":       {raw: func(c net.Conn) { _, _ = c.Read(make([]byte, 10)); deaf(c) }, want: retry, hangs: true, says: "no answer within"},
		"101 with Upgrade":             {raw: says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", silent), want: dead, says: "101 Switching Protocols"},
		"101 with Upgrade, and talks":  {raw: says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", repeats("x", time.Millisecond)), want: dead, says: "101"},
		"101 with Upgrade, and floods": {raw: says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", repeats(strings.Repeat("x", 4096), 0)), want: dead, says: "101"},
		"101 without Upgrade":          {raw: says("HTTP/1.1 101 Switching Protocols\r\n\r\n", silent), want: dead, says: "101"},
		"101 after 103":                {raw: says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", silent), want: dead, says: "101"},
		"103, then silence":            {raw: says("HTTP/1.1 103 Early Hints\r\n\r\n", silent), want: retry, hangs: true, says: "no answer within"},
		"100 for ever":                 {raw: says("", repeats("HTTP/1.1 100 Continue\r\n\r\n", time.Second)), want: retry, hangs: true, says: "no answer within"},
		"100 for ever, quickly":        {raw: says("", repeats("HTTP/1.1 100 Continue\r\n\r\n", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"103 for ever, quickly":        {raw: says("", repeats("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"199 for ever, quickly":        {raw: says("", repeats("HTTP/1.1 199 Hm\r\n\r\n", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"a status line without end":    {raw: says("HTTP/1.1 200 ", repeats("O", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"a status line that trickles":  {raw: says("HTTP/1.1 200 ", repeats("O", time.Second)), want: retry, hangs: true, says: "no answer within"},
		"a header without end":         {raw: says("HTTP/1.1 200 OK\r\nA: ", repeats("a", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"headers without end":          {raw: says("HTTP/1.1 200 OK\r\n", repeats("A: b\r\n", 0)), want: retry, says: "headers exceeded 65536 bytes"},
		"headers that trickle":         {raw: says("HTTP/1.1 200 OK\r\n", repeats("A: b\r\n", time.Second)), want: retry, hangs: true, says: "no answer within"},
		"a body without end":           {raw: says("HTTP/1.1 200 OK\r\n\r\n", repeats("b", 0)), want: done},
		"a body that trickles":         {raw: says("HTTP/1.1 200 OK\r\n\r\n", repeats("b", time.Second)), want: done, hangs: true},
		"a body that stops":            {raw: says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", silent), want: done, hangs: true},
		"a failure without end":        {raw: says("HTTP/1.1 500 No\r\n\r\n", repeats("b", 0)), want: retry, says: `500 Internal Server Error: "bbb`},
		"a failure that trickles":      {raw: says("HTTP/1.1 404 No\r\n\r\n", repeats("b", time.Second)), want: dead, hangs: true, says: `404 Not Found: "b`},
		"a failure that stops":         {raw: says("HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nbody", silent), want: retry, hangs: true, says: `503 Service Unavailable: "body"`},
		"chunks without end":           {raw: says("HTTP/1.1 200 OK\r\n"+chunked, repeats("1\r\nb\r\n", 0)), want: done},
		"chunks that trickle":          {raw: says("HTTP/1.1 200 OK\r\n"+chunked, repeats("1\r\nb\r\n", time.Second)), want: done, hangs: true},
		"a chunk's size without end":   {raw: says("HTTP/1.1 200 OK\r\n"+chunked, repeats("1", 0)), want: done},
		"an extension without end":     {raw: says("HTTP/1.1 200 OK\r\n"+chunked+"1;a=", repeats("a", 0)), want: done},
		"trailers without end":         {raw: says("HTTP/1.1 200 OK\r\nTrailer: A\r\n"+chunked+"0\r\nA: ", repeats("a", 0)), want: done},
		"trailers that trickle":        {raw: says("HTTP/1.1 200 OK\r\nTrailer: A\r\n"+chunked+"0\r\nA: ", repeats("a", time.Second)), want: done, hangs: true},
		"no HTTP":                      {raw: says("SSH-2.0-OpenSSH_9.6\r\n\r\n", silent), want: retry, says: "malformed HTTP"},
		"no body":                      {raw: says("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", silent), want: done},
		"a status below 100":           {raw: says("HTTP/1.1 099 Hm\r\nConnection: close\r\n\r\n", silent), want: dead, says: ": 99 "},
		"the connection closes":        {raw: says("", func(net.Conn) {}), want: retry, says: "EOF"},
		"it closes in the headers":     {raw: says("HTTP/1.1 200 OK\r\nA: b", func(net.Conn) {}), want: retry, says: "EOF"},
		"it closes in the body":        {raw: says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", func(net.Conn) {}), want: done},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"timeout", "context"} {
				synctest.Test(t, func(t *testing.T) {
					const within = 5500 * time.Millisecond
					o, ctx := Options{Timeout: within}, t.Context()
					if by == "context" {
						o.Timeout = MaxTimeout
						cause := fmt.Errorf("no answer within the lease")
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeoutCause(ctx, within, cause)
						defer cancel()
					}
					h := local(t, o)
					ended := receives(t, h, c.raw)
					began := time.Now()
					took, err := handle(ctx, t, h, Call{URL: "http://a", Body: make([]byte, 10_000)})
					require.Equal(t, c.want, verdict(err), "%v", err)
					if c.says != "" {
						require.ErrorContains(t, err, c.says)
					}
					if c.hangs {
						require.Equal(t, within, took)
					} else {
						require.Less(t, took, time.Second)
					}
					require.Zero(t, h.Stats().Hosts)
					ended()
					if !strings.Contains(name, "read") { // one that does not read cannot see that the connection is closed
						require.LessOrEqual(t, time.Since(began)-took, time.Second)
					}
				})
			}
		})
	}
}

func verdict(err error) string {
	switch {
	case err == nil:
		return done
	case fmt.Sprintf("%T", err) == fmt.Sprintf("%T", durable.Discard(nil)):
		return dead
	}
	return retry
}

// A receiver that has closed its half of the connection does not keep the other half
// open.
func TestHalfClosed(t *testing.T) {
	for text, want := range map[string]string{
		"":                        retry,
		"HTTP/1.1 200 OK\r\nA: b": retry,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody": done,
		"HTTP/1.1 200 OK\r\n\r\nbody":                      done,
		"HTTP/1.1 500 No\r\n\r\nbody":                      retry,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := local(t, Options{})
			ready := make(chan struct{})
			ended := receives(t, h, func(c net.Conn) { asked(c); close(ready); silent(c) })
			dial := h.dial
			h.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dial(ctx, network, address)
				return half{c, strings.NewReader(text), ready}, err
			}
			began := time.Now()
			require.Equal(t, want, verdict(h.Handle(t.Context(), fired(t, Call{URL: "http://a"}))), text)
			ended()
			require.Zero(t, time.Since(began))
		})
	}
}

// A connection that was used before is silent, or closes: the call ends as with a new
// one.
func TestHostileAfterAGoodCall(t *testing.T) {
	good := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		rest func(net.Conn)
		want string
	}{
		"silent": {silent, retry},
		"closes": {says("", func(net.Conn) {}), done}, // it is sent again, over a new one
		"101":    {says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", silent), dead},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := local(t, Options{Timeout: 3 * time.Second})
			ended := receives(t, h, says(good, c.rest))
			call := fired(t, Call{URL: "http://a"})
			require.NoError(t, h.Handle(t.Context(), call))
			synctest.Wait()
			began := time.Now()
			require.Equal(t, c.want, verdict(h.Handle(t.Context(), call)), name)
			require.LessOrEqual(t, time.Since(began), 3*time.Second)
			h.Close()
			ended()
		})
	}
}

// secure returns a configuration for receivers and the options of a handler that
// trusts them.
func secure(protocols ...string) (*tls.Config, Options) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: protocols},
		Options{Timeout: 5 * time.Second, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig}
}

// over returns a receiver that speaks TLS.
func over(config *tls.Config, raw func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		t := tls.Server(c, config)
		if t.HandshakeContext(context.Background()) == nil {
			raw(t)
		}
	}
}

func TestHostileTLS(t *testing.T) {
	config, o := secure("http/1.1")
	for name, c := range map[string]struct {
		raw   func(net.Conn)
		want  string
		hangs bool
	}{
		"no handshake":           {silent, retry, true},
		"no TLS":                 {func(c net.Conn) { go silent(c); until(c, "hello\r\n", 0) }, retry, false},
		"silence":                {over(config, says("", silent)), retry, true},
		"nothing is read":        {over(config, deaf), retry, true},
		"nothing is read after":  {over(config, says("", deaf)), retry, true},
		"a body, and no reading": {over(config, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", deaf)), done, true},
		"101, and no reading":    {over(config, says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", deaf)), dead, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := local(t, o)
				ended := receives(t, h, c.raw)
				took, err := handle(t.Context(), t, h, Call{URL: "https://example.com", Body: make([]byte, 10_000)})
				require.Equal(t, c.want, verdict(err), "%v", err)
				want := time.Duration(0)
				if c.hangs {
					want = o.Timeout
				}
				require.GreaterOrEqual(t, took, want)
				require.Less(t, took, want+100*time.Millisecond)
				ended()
			})
		})
	}
}

// HTTP/2: a receiver is told how much may be sent to us, and a connection on which it
// does not answer is replaced.
func TestHTTP2IsBounded(t *testing.T) {
	config, o := secure("h2")
	synctest.Test(t, func(t *testing.T) {
		h := local(t, o)
		settings := make(chan map[uint16]uint32, 100)
		ended := receives(t, h, over(config, func(c net.Conn) {
			b := make([]byte, 24+9) // the preface and a frame's header
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			b = make([]byte, int(b[24])<<16|int(b[25])<<8|int(b[26]))
			_, _ = io.ReadFull(c, b)
			got := map[uint16]uint32{}
			for ; len(b) >= 6; b = b[6:] {
				got[binary.BigEndian.Uint16(b)] = binary.BigEndian.Uint32(b[2:])
			}
			settings <- got
			go io.WriteString(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // its own: the defaults
			silent(c)
		}))
		for began := time.Now(); time.Since(began) < time.Minute; {
			took, err := handle(t.Context(), t, h, Call{URL: "https://example.com"})
			require.Equal(t, retry, verdict(err))
			require.LessOrEqual(t, took, o.Timeout)
		}
		got := <-settings
		require.EqualValues(t, 64<<10, got[4], "SETTINGS_INITIAL_WINDOW_SIZE")
		require.Less(t, got[6], uint32(70_000), "SETTINGS_MAX_HEADER_LIST_SIZE")
		require.NotEmpty(t, settings, "no other connection was made in a minute")
		h.Close()
		ended()
	})
}

func TestHostileHTTP2(t *testing.T) {
	config, o := secure("h2")
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	write := func(w http.ResponseWriter, r *http.Request, pause time.Duration) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "b"); err != nil {
				return
			}
			flush(w)
			time.Sleep(pause)
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string
		hangs bool
	}{
		"silence":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, retry, true},
		"a body":      {func(w http.ResponseWriter, r *http.Request) { write(w, r, 0) }, done, false},
		"a slow body": {func(w http.ResponseWriter, r *http.Request) { write(w, r, time.Second) }, done, true},
		"a slow failure": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			write(w, r, time.Second)
		}, retry, true},
		"103 for ever":     {func(w http.ResponseWriter, r *http.Request) { informs(w, r, 0) }, retry, false},
		"103 that trickle": {func(w http.ResponseWriter, r *http.Request) { informs(w, r, time.Second) }, retry, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := o
				o.Timeout = 5500 * time.Millisecond
				h := local(t, o)
				server := http.Server{Handler: c.serve, TLSConfig: config.Clone()}
				conns := make(chan net.Conn)
				ctx, stop := context.WithCancel(t.Context())
				go server.ServeTLS(&pipeListener{conns: conns, ctx: ctx}, "", "")
				h.dial = func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					conns <- server
					return client, nil
				}
				took, err := handle(t.Context(), t, h, Call{URL: "https://example.com"})
				require.Equal(t, c.want, verdict(err), "%v", err)
				if c.hangs {
					require.Equal(t, o.Timeout, took)
				} else {
					require.Zero(t, took)
				}
				h.Close()
				stop()
				server.Close()
				time.Sleep(2 * time.Second)
			})
		})
	}
}

func informs(w http.ResponseWriter, r *http.Request, pause time.Duration) {
	w.Header().Set("Link", strings.Repeat("x", 1000))
	for r.Context().Err() == nil {
		w.WriteHeader(http.StatusEarlyHints)
		time.Sleep(pause)
	}
}
