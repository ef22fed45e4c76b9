package longpoll

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// stalled is a client that reads the header of its answer, and no data until resume. A test
// that would hang is ended by the client's disconnect, after an hour.
type stalled struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	body io.ReadCloser // HTTP/1.1
	data chan string   // HTTP/2: the answer's data, and its end
}

// startStalled makes a poll, and returns when its header has arrived.
func startStalled(t *testing.T, client *http.Client, path string, http2 bool) *stalled {
	t.Helper()
	conn, err := client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
	require.NoError(t, err)
	hangUp := time.AfterFunc(time.Hour, func() { _ = conn.Close() })
	t.Cleanup(func() {
		hangUp.Stop()
		_ = conn.Close()
	})
	c := &stalled{t: t, conn: conn, r: bufio.NewReader(conn), data: make(chan string, 1)}
	if http2 {
		_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		require.NoError(t, err)
		header := make(chan struct{})
		go c.read(header)
		c.frame(4, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // INITIAL_WINDOW_SIZE is 0
		block := append([]byte{0x82, 0x86, 4, byte(len(path))}, path...)
		c.frame(1, 5, 1, append(block, "\x41\x05pipes"...))
		<-header
		return c
	}
	c.body = c.get(path)
	return c
}

// get sends a request over HTTP/1.1, and reads the header of its answer.
func (c *stalled) get(path string) io.ReadCloser {
	_, err := io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: pipes\r\n\r\n")
	require.NoError(c.t, err)
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	return resp.Body
}

// readAll reads an answer's data, and reports how it ended.
func readAll(body io.ReadCloser) string {
	b, err := io.ReadAll(body)
	if errors.Join(err, body.Close()) != nil {
		return string(b) + ", broken off"
	}
	return string(b) + ", whole"
}

// frame sends an HTTP/2 frame: RFC 9113, section 4.1.
func (c *stalled) frame(kind, flags, stream byte, payload []byte) {
	b := append([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}, payload...)
	_, err := c.conn.Write(b)
	require.NoError(c.t, err)
}

// read receives HTTP/2 frames, so that only the window holds data back.
func (c *stalled) read(header chan<- struct{}) {
	text := ""
	for {
		var head [9]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c.r, payload); err != nil {
			return
		}
		switch kind, last := head[3], head[4]&1 != 0; {
		case kind == 1:
			close(header)
		case kind == 0 && last:
			c.data <- text + string(payload) + ", whole"
		case kind == 0:
			text += string(payload)
		case kind == 3:
			c.data <- text + ", broken off"
		}
	}
}

// resume reads the data, and reports how it ended.
func (c *stalled) resume() string {
	if c.body != nil {
		return readAll(c.body)
	}
	c.frame(8, 0, 1, []byte{0, 0, 255, 255}) // WINDOW_UPDATE
	return <-c.data
}

// A client that reads no data delays the end of its poll for at most lastByteTimeout.
func TestKeepAwakeIsNotRead(t *testing.T) {
	for _, http2 := range inBubbles() {
		for _, timeout := range []time.Duration{0, 24 * time.Hour} {
			t.Run(fmt.Sprintf("http2=%t/WriteTimeout=%v", http2, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
					ended := make(chan struct{})
					_, client := startInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(ended)
						f.serve(p)(w, r)
					}), http2, func(s *http.Server) { s.WriteTimeout = timeout })
					began := time.Now()
					startStalled(t, client, "/?wait=2.5", http2)
					require.Equal(t, time.Second, time.Since(began))
					<-ended
					require.InDelta(t, (2500*time.Millisecond + lastByteTimeout).Seconds(), time.Since(began).Seconds(), 0.01)
					require.Equal(t, Stats{Disconnected: 1}, p.Stats())
				})
			})
		}
	}
}

// A client that reads no data does not block its server's shutdown.
func TestKeepAwakeIsNotReadDuringShutdown(t *testing.T) {
	for _, http2 := range inBubbles() {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
				srv, client := startInBubble(t, f.serve(p), http2, nil)
				srv.RegisterOnShutdown(f.p.Close)
				startStalled(t, client, "/", http2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, srv.Shutdown(ctx))
				require.Equal(t, Stats{Refused: 1}, p.Stats())
			})
		})
	}
}

// If the byte is read in time, the answer has its whole time, and so has the connection's next
// request.
func TestKeepAwakeIsReadLate(t *testing.T) {
	for _, http2 := range inBubbles() {
		for _, timeout := range []time.Duration{0, 3 * lastByteTimeout} {
			t.Run(fmt.Sprintf("http2=%t/WriteTimeout=%v", http2, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, p := newFeed(t, purgatory.Options{}), polls(t, Options{KeepAwake: time.Second})
					_, client := startInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if p.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
							return f.p.Await(ctx, timeout, func() bool { return f.n.Load() > 0 }, "feed")
						}) {
							time.Sleep(2 * lastByteTimeout)
							_, _ = io.WriteString(w, "answer")
						}
					}), http2, func(s *http.Server) { s.WriteTimeout = timeout })
					c := startStalled(t, client, "/", http2)
					time.Sleep(time.Millisecond) // the byte is being written
					f.add()
					time.Sleep(lastByteTimeout / 2)
					require.Equal(t, Stats{Pending: 1}, p.Stats())
					require.Equal(t, "\nanswer, whole", c.resume())
					require.Equal(t, Stats{Ready: 1}, p.Stats())
					if http2 { // whose deadlines are not those of the connection
						return
					}
					time.Sleep(time.Minute)
					require.Equal(t, "answer, whole", readAll(c.get("/")))
				})
			})
		}
	}
}
