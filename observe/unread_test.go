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

// Clients that request the stream and never read delay no other client, and share one buffer.
func TestClientsThatNeverRead(t *testing.T) {
	was := writeTimeout
	writeTimeout = time.Hour                 // keeps the streams open
	t.Cleanup(func() { writeTimeout = was }) // when no goroutine reads it any more
	leavesNone(t)
	r := New()
	big := strings.Repeat("x", 1<<20)
	add(t, r, "big", Custom("big", func() []Metric { // a snapshot of 4 MiB, more than any client's buffer
		var list []Metric
		for i := range 4 {
			list = append(list, Metric{Name: "n", Label: "l", LabelValue: big + fmt.Sprint(i)})
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
		require.NoError(t, c.SetDeadline(time.Now().Add(waitLimit)))
		_, err = fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		require.NoError(t, err)
		for joined := 0; joined < n; { // until the deadline ends the test
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
	// The server holds the newest snapshot, the previous one, and one in progress, plus the
	// buffers of the same size that they are marshalled into. A copy for each stream would add
	// 44 MiB. Some more snapshots may be made while this test is not running.
	require.Eventually(t, func() bool {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc < 40<<20
	}, waitLimit, time.Millisecond)
}
