package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

// receives serves in-memory connections with raw, whatever the address. It returns a function that
// waits until all of them have ended.
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

// handle makes a call, and fails the test if it does not end.
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

// readRequest reads a request, to the end of its body.
func readRequest(c net.Conn) *bufio.Reader {
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

// until writes text repeatedly, with pauses, until the other side has closed the connection.
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

// deaf keeps the connection open without reading.
func deaf(net.Conn) { time.Sleep(time.Minute) }

// says returns a receiver that reads a request, writes text, and continues with rest.
func says(text string, rest func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
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

// No answer of a receiver extends a call beyond its timeout, or beyond the end of its context; its
// connection is then closed.
func TestHostileReceivers(t *testing.T) {
	for name, c := range map[string]struct {
		raw   func(net.Conn)
		want  string
		hangs bool // the call ends with its timeout; otherwise at once
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
					if !strings.Contains(name, "read") { // a receiver that does not read cannot detect that the connection is closed
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

// A receiver that has closed its half of the connection does not keep the other half open.
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
			ended := receives(t, h, func(c net.Conn) { readRequest(c); close(ready); silent(c) })
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

// A reused connection is silent, or closes: the call ends as with a new one.
func TestHostileAfterAGoodCall(t *testing.T) {
	good := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		rest func(net.Conn)
		want string
	}{
		"silent": {silent, retry},
		"closes": {says("", func(net.Conn) {}), done}, // it is repeated, over a new connection
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

// overTLS returns a receiver that speaks TLS.
func overTLS(config *tls.Config, raw func(net.Conn)) func(net.Conn) {
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
		"silence":                {overTLS(config, says("", silent)), retry, true},
		"nothing is read":        {overTLS(config, deaf), retry, true},
		"nothing is read after":  {overTLS(config, says("", deaf)), retry, true},
		"a body, and no reading": {overTLS(config, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", deaf)), done, true},
		"101, and no reading":    {overTLS(config, says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", deaf)), dead, false},
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

// HTTP/2: the settings bound how much a receiver may send, and a connection on which it does not
// answer is replaced.
func TestHTTP2IsBounded(t *testing.T) {
	config, o := secure("h2")
	synctest.Test(t, func(t *testing.T) {
		h := local(t, o)
		settings := make(chan map[uint16]uint32, 100)
		ended := receives(t, h, overTLS(config, func(c net.Conn) {
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
			go io.WriteString(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // its own settings: the defaults
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

// frame encodes a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	n := len(payload)
	head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	return string(head) + payload
}

const (
	frameData, frameHeaders, frameSettings, frameWindow = 0, 1, 4, 8

	endStream, endHeaders = 1, 4

	status200, status500 = "\x88", "\x8e"             // in HPACK
	noWindow             = "\x00\x04\x00\x00\x00\x00" // SETTINGS_INITIAL_WINDOW_SIZE 0
)

// stopsReading returns an HTTP/2 receiver that answers requests without a body. It answers the
// first request that has a body with a status and a reply, lets the client send the body, and then
// stops reading, but sends an unknown frame now and then. It closes stopped once the client has
// read the frames that allow the body.
func stopsReading(status, reply string, stopped chan<- struct{}) func(net.Conn) {
	return func(c net.Conn) {
		send, sent := make(chan string, 10), make(chan struct{})
		go func() { // the client may read only after it has written
			defer close(sent)
			for frames := range send {
				_, _ = io.WriteString(c, frames)
			}
		}()
		replyUnread(c, send, status, reply)
		close(send)
		<-sent
		unknown := frame(0xfe, 0, 0, "")
		for range 2 { // the client handles one frame before it reads another record
			_, _ = io.WriteString(c, unknown)
		}
		close(stopped)
		until(c, unknown, 10*time.Millisecond)
	}
}

func replyUnread(c net.Conn, send chan<- string, status, reply string) {
	if _, err := io.CopyN(io.Discard, c, 24); err != nil { // the preface
		return
	}
	send <- frame(frameSettings, 0, 0, noWindow)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		n := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, c, n); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind != frameHeaders:
		case flags&endStream != 0:
			send <- frame(frameHeaders, endHeaders|endStream, stream, status200)
		default:
			send <- frame(frameHeaders, endHeaders, stream, status) +
				frame(frameData, 0, stream, reply) +
				frame(frameWindow, 0, stream, "\x00\x01\x00\x00")
			return
		}
	}
}

// While a write to an HTTP/2 connection hangs, a reply can neither be read to its end nor be
// closed. The call ends nevertheless. The clock of a synctest bubble stops while a goroutine waits
// for a mutex, so this test and the next one run in real time.
func TestHTTP2ReceiverStopsReading(t *testing.T) {
	config, o := secure("h2")
	for _, status := range []string{status200, status500} {
		for _, length := range []int{0, 1, 5000} { // after 4096 bytes a read sends an update to the receiver, which is a write
			for _, by := range []string{"timeout", "context"} {
				t.Run(fmt.Sprintf("%x, %d bytes, %s", status, length, by), func(t *testing.T) {
					t.Parallel()
					o := o
					o.MaxReply = 10_000
					h := local(t, o)
					h.writeTimeout = time.Hour
					stopped := make(chan struct{})
					receives(t, h, overTLS(config, stopsReading(status, strings.Repeat("r", length), stopped)))
					firstThenUnread(t, h, by, stopped)
					require.Zero(t, h.Stats().Hosts)
				})
			}
		}
	}
}

// firstThenUnread makes a call that stopsReading answers, and one whose body it does not read, and
// waits for both.
func firstThenUnread(t *testing.T, h *Handler, by string, stopped <-chan struct{}) {
	t.Helper()
	call := Call{URL: "https://example.com", Timeout: MaxTimeout}
	require.NoError(t, h.Handle(t.Context(), fired(t, call))) // the client now has the settings
	call.Body = make([]byte, 40_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if by == "timeout" {
		call.Timeout = 100 * time.Millisecond
	} else {
		go func() {
			<-stopped
			cancel()
		}()
	}
	ends := make(chan struct{})
	go func() {
		defer close(ends)
		_ = h.Handle(ctx, fired(t, call))
	}()
	await(t, ends, "the call holds its slot")
}

// await waits for an event that should happen soon.
func await(t *testing.T, happens <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-happens:
	case <-time.After(time.Minute):
		t.Fatal(otherwise)
	}
}

// A connection whose receiver does not read is closed, and all resources of its calls are
// released.
func TestUnreadConnectionsAreClosed(t *testing.T) {
	config, o := secure("h2")
	h := local(t, o)
	h.writeTimeout = 100 * time.Millisecond
	stopped := make(chan struct{})
	ended := receives(t, h, overTLS(config, stopsReading(status200, "reply", stopped)))
	firstThenUnread(t, h, "context", stopped)
	closed := make(chan struct{})
	go func() {
		ended()
		close(closed)
	}()
	await(t, closed, "the connection is open")
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("http.(*http2clientStream)")) && !bytes.Contains(stacks, []byte("webhook.(*Handler)"))
	}, time.Minute, 10*time.Millisecond, "goroutines are left")
}

// A connection serves consecutive calls, whatever the replies.
func TestConnectionsAreReused(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		synctest.Test(t, func(t *testing.T) {
			config, o := secure(protocol)
			h := local(t, o)
			reply := ""
			server := http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				require.Equal(t, protocol, r.TLS.NegotiatedProtocol)
				_, _ = io.WriteString(w, reply)
			})}
			conns := make(chan net.Conn)
			ctx, stop := context.WithCancel(t.Context())
			go server.ServeTLS(&pipeListener{conns: conns, ctx: ctx}, "", "")
			dials := 0
			h.dial = func(context.Context, string, string) (net.Conn, error) {
				dials++
				client, server := net.Pipe()
				conns <- server
				return client, nil
			}
			for _, n := range []int{0, 1, 1000, 4000} {
				reply = strings.Repeat("r", n)
				for _, body := range []int{0, 1, 20_000} {
					require.NoError(t, h.Handle(t.Context(), fired(t, Call{URL: "https://example.com", Body: make([]byte, body)})))
				}
			}
			require.Equal(t, 1, dials, protocol)
			h.Close()
			stop()
			server.Close()
			time.Sleep(2 * time.Second)
		})
	}
}
