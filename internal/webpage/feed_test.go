package webpage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPause(t *testing.T) {
	for took, is := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 51 * time.Millisecond: 1020 * time.Millisecond, time.Second: 20 * time.Second,
	} {
		require.Equal(t, is, Pause(took), took)
	}
}

// client reads a stream from a pipe.
type client struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	err    chan error // receives the result of Serve
}

type pipeWriter struct {
	*io.PipeWriter
	head http.Header
}

func (w pipeWriter) Header() http.Header { return w.head }
func (w pipeWriter) WriteHeader(int)     {}
func (w pipeWriter) Flush()              {}

func open(f *Feed, more func() ([]byte, bool)) *client {
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	c := &client{bufio.NewScanner(out), func() { cancel(); _ = out.Close() }, make(chan error, 1)}
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	go func() {
		err := f.Serve(pipeWriter{in, http.Header{}}, r, more)
		_ = in.Close()
		c.err <- err
	}()
	return c
}

// next returns the next line that is not empty, or "" if the stream has ended.
func (c *client) next() string {
	for c.lines.Scan() {
		if c.lines.Text() != "" {
			return c.lines.Text()
		}
	}
	return ""
}

// counting is a feed whose events are numbers, one a second; begun counts the calls of begin.
func counting(most int, begun *int) *Feed {
	return NewFeed(most, func() func(context.Context) ([]byte, time.Time) {
		*begun++
		n := 0
		return func(context.Context) ([]byte, time.Time) {
			n++
			return Event("n", fmt.Append(nil, n)), time.Now().Add(time.Second)
		}
	})
}

// One goroutine makes the events of all streams, and none runs without a stream. It can start
// again.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		f := counting(2, &begun)
		a, b := open(f, nil), open(f, nil)
		for _, line := range []string{"retry: 1000", "event: n", "data: 1", "event: n", "data: 2"} {
			require.Equal(t, line, a.next())
			require.Equal(t, line, b.next())
		}
		require.Equal(t, 2, f.Streams())
		require.ErrorIs(t, <-open(f, nil).err, ErrTooMany)
		a.cancel()
		b.cancel()
		require.NoError(t, errors.Join(<-a.err, <-b.err))
		time.Sleep(2 * time.Second)
		require.Zero(t, f.Streams())
		c := open(f, nil)
		for _, line := range []string{"retry: 1000", "event: n", "data: 1"} {
			require.Equal(t, line, c.next(), "no old event")
		}
		require.Equal(t, 2, begun)
		f.Close()
		require.NoError(t, <-c.err)
		require.ErrorIs(t, <-open(f, nil).err, ErrClosed)
		f.Close()
	})
}

// A stream can add its own events, and end.
func TestMoreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := 0, 0
		f := counting(1, &begun)
		c := open(f, func() ([]byte, bool) {
			n++
			return Event("more", []byte("0")), n < 3
		})
		for _, line := range []string{"retry: 1000", "event: n", "data: 1", "event: more", "data: 0", "event: n", "data: 2", "event: more", "data: 0", ""} {
			require.Equal(t, line, c.next())
		}
		require.NoError(t, <-c.err)
		time.Sleep(2 * time.Second)
	})
}

// A client that disconnects in the middle of an event ends its stream.
func TestReadersThatLeave(t *testing.T) {
	for lines := range 4 {
		synctest.Test(t, func(t *testing.T) {
			begun := 0
			f := counting(1, &begun)
			c := open(f, func() ([]byte, bool) { return []byte("x\n"), true })
			for range lines {
				c.next()
			}
			c.cancel()
			require.NoError(t, <-c.err)
			time.Sleep(2 * time.Second)
			require.Zero(t, f.Streams())
		})
	}
}

// A HEAD request, which a pattern for GET matches, ends.
func TestHead(t *testing.T) {
	begun := 0
	f := counting(1, &begun)
	w := httptest.NewRecorder()
	require.NoError(t, f.Serve(w, httptest.NewRequest(http.MethodHead, "/", nil), nil))
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Zero(t, begun)
}
