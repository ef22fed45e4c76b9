package observe

import (
	"bufio"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clients that ask for the stream and never read hold nobody up, and share what is
// kept for them.
func TestClientsThatNeverRead(t *testing.T) {
	was := writeTimeout
	writeTimeout = time.Hour                 // the streams stay
	t.Cleanup(func() { writeTimeout = was }) // when no goroutine is left that reads it
	leavesNone(t)
	r := New()
	big := strings.Repeat("x", 1<<20)
	add(t, r, "big", Custom("big", func() []Figure { // a snapshot of 4 MiB, which no client's buffer holds
		var list []Figure
		for i := range 4 {
			list = append(list, Figure{Name: "n", Label: "l", LabelValue: big + fmt.Sprint(i)})
		}
		return list
	}))
	h := NewHandler(r)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	address := s.Listener.Addr().String()
	open := func(n int) net.Conn {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		require.NoError(t, err)
		for joined := 0; joined < n; { // or the deadline ends the test
			_, err := c.Write(nil)
			require.NoError(t, err)
			joined = h.feed.Streams()
			runtime.Gosched()
		}
		return c
	}
	for n := range 10 {
		open(n + 1)
	}
	lines := bufio.NewReaderSize(open(11), 1<<16)
	for n := 0; n < 2; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, "event: snapshot") {
			n++
		}
	}
	// The newest, the one before, and one that is being made, of what is marshalled into
	// buffers as large: and not one for each stream, which would be 44 MiB beside these. Some more
	// can be made while this test is not running.
	require.Eventually(t, func() bool {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc < 40<<20
	}, patience, time.Millisecond)
}
