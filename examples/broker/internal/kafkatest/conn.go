package kafkatest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// Conn is a connection that sends and receives frames.
type Conn struct {
	T           testing.TB
	NC          net.Conn
	R           *bufio.Reader
	correlation int32
}

// Dial connects to a broker. The connection is closed when the test ends.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	return DialOn(t, network.Machine, addr)
}

// DialOn is like Dial, on the given network.
func DialOn(t testing.TB, n network.Network, addr string) *Conn {
	t.Helper()
	nc, err := n.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(WaitLimit)))
	return &Conn{T: t, NC: nc, R: bufio.NewReader(nc)}
}

// Send sends requests in a single write.
func (c *Conn) Send(reqs ...kmsg.Request) {
	c.T.Helper()
	var out []byte
	for _, req := range reqs {
		c.correlation++
		out = append(out, Formatter.AppendRequest(nil, req, c.correlation)...)
	}
	c.Write(out)
}

func (c *Conn) Write(b []byte) {
	c.T.Helper()
	_, err := c.NC.Write(b)
	require.NoError(c.T, err)
}

// Frame reads one response.
func (c *Conn) Frame() (correlation int32, body []byte) {
	c.T.Helper()
	var size [4]byte
	_, err := io.ReadFull(c.R, size[:])
	require.NoError(c.T, err)
	body = make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c.R, body)
	require.NoError(c.T, err)
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

// Receive reads the response to req, and checks that kmsg decodes it with no byte missing or left
// over.
func (c *Conn) Receive(req kmsg.Request) kmsg.Response {
	c.T.Helper()
	correlation, body := c.Frame()
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		require.Zero(c.T, body[0], "tags of the header")
		body = body[1:]
	}
	require.NoError(c.T, resp.ReadFrom(body))
	require.Equal(c.T, body, resp.AppendTo(nil), "answer is not what kmsg makes of it")
	c.T.Logf("%s %d: correlation %d", kmsg.NameForKey(req.Key()), req.GetVersion(), correlation)
	return resp
}

// Call sends a request and reads its response.
func (c *Conn) Call(req kmsg.Request) kmsg.Response {
	c.T.Helper()
	c.Send(req)
	return c.Receive(req)
}

// Closed waits until the broker closes the connection without a response.
func (c *Conn) Closed() {
	c.T.Helper()
	n, err := io.Copy(io.Discard, c.R)
	require.Zero(c.T, n, "an answer")
	if err != nil { // reset, if the broker left bytes unread
		require.ErrorIs(c.T, err, syscall.ECONNRESET)
	}
}

// Silent is a listener that never accepts: the fuzz targets pass their own connections to the
// server.
type Silent struct{ closed chan struct{} }

// NewSilent returns a Silent that is not closed.
func NewSilent() Silent { return Silent{make(chan struct{})} }

// Accept blocks until Close.
func (l Silent) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }

// Addr returns no address.
func (l Silent) Addr() net.Addr { return &net.TCPAddr{} }

// Close ends Accept.
func (l Silent) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}
