package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pair returns both ends of a connection, with deadlines that end a test which hangs.
func pair(t *testing.T, n Network) (near, far net.Conn) {
	t.Helper()
	l, err := n.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	near, err = n.DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	far, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, c := range []net.Conn{near, far} {
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Equal(t, near.LocalAddr().String(), far.RemoteAddr().String())
	require.Equal(t, far.LocalAddr().String(), near.RemoteAddr().String())
	return near, far
}

// A Memory behaves like this machine's TCP.
func TestAsTCP(t *testing.T) {
	t.Parallel()
	closer := func(c net.Conn) { _ = c.Close() }
	for name, c := range map[string]struct {
		end          func(near net.Conn) // after it has written "hello", and the far end "x"
		drains       bool                // the near end has read the "x"
		reads, write error               // at the far end, after "hello"
	}{
		"closed":             {end: closer, drains: true, reads: io.EOF},
		"closed with unread": {end: closer, reads: syscall.ECONNRESET, write: syscall.EPIPE},
		"half closed":        {end: func(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() }, drains: true, reads: io.EOF},
		"reset": {drains: true, reads: syscall.ECONNRESET, write: syscall.EPIPE, end: func(c net.Conn) {
			_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
			closer(c)
		}},
	} {
		for _, n := range []Network{Machine, new(Memory)} {
			t.Run(fmt.Sprintf("%s/%T", name, n), func(t *testing.T) {
				near, far := pair(t, n)
				_, err := io.WriteString(near, "hello")
				require.NoError(t, err)
				b := make([]byte, 5)
				_, err = io.ReadFull(far, b)
				require.NoError(t, err)
				require.Equal(t, "hello", string(b))
				_, err = io.WriteString(far, "x")
				require.NoError(t, err)
				if c.drains {
					_, err = near.Read(b)
					require.NoError(t, err)
				}
				c.end(near)
				_, err = far.Read(b)
				require.ErrorIs(t, err, c.reads)
				if c.write != nil {
					_, err = io.WriteString(far, "y")
					require.ErrorIs(t, err, c.write)
				}
			})
		}
	}
	for _, n := range []Network{Machine, new(Memory)} {
		t.Run(fmt.Sprintf("deadlines and listeners/%T", n), func(t *testing.T) {
			near, far := pair(t, n)
			_, err := io.WriteString(far, "x")
			require.NoError(t, err)
			require.NoError(t, near.SetReadDeadline(time.Unix(1, 0)))
			_, err = near.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, near.SetReadDeadline(time.Time{}))
			_, err = near.Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, near.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
			_, err = near.Write(make([]byte, 64<<20)) // more than the buffers hold
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)

			l, err := n.Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			_, err = n.Listen(t.Context(), "tcp", l.Addr().String())
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			waits, err := n.DialContext(t.Context(), "tcp", l.Addr().String()) // and is not accepted
			require.NoError(t, err)
			require.NoError(t, l.Close())
			_, err = waits.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = l.Accept()
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = n.DialContext(t.Context(), "tcp", l.Addr().String())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = n.DialContext(ctx, "tcp", l.Addr().String())
			require.Error(t, err)
		})
	}
}

// In a bubble, a read takes the latency, and a deadline is exact to the nanosecond.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, &Memory{Latency: time.Millisecond})
		began := time.Now()
		_, err := io.WriteString(near, "x")
		require.NoError(t, err)
		_, err = far.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, time.Since(began))
		require.NoError(t, far.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = far.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second+time.Millisecond, time.Since(began))
		var reading sync.WaitGroup
		reading.Go(func() {
			time.Sleep(time.Second)
			_, _ = io.Copy(io.Discard, far)
		})
		require.NoError(t, far.SetReadDeadline(time.Time{}))
		_, err = near.Write(make([]byte, 2*socketBuffer)) // waits for the reader
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.NoError(t, near.Close())
		reading.Wait()
	})
}
