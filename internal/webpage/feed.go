package webpage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// The errors of [Feed.Serve]. Serve has not written a response when it returns one.
var (
	ErrClosed  = errors.New("the server is shutting down")
	ErrTooMany = errors.New("too many pages are open: close one")
)

// WriteTimeout is how long a client may take to read one response, or one event.
const WriteTimeout = 10 * time.Second

// Feed sends events to the streams of all open pages. One goroutine makes the events while there
// is a stream, and each stream sends the newest event when it has sent its last one. So a slow
// client misses some, and a client that never reads costs only its connection's buffer. Make one
// with [NewFeed]. It is safe for concurrent use.
type Feed struct {
	// Timeout is how long a client may take to read one event. Default [WriteTimeout]. Set it
	// before the first stream.
	Timeout time.Duration

	maxStreams int
	begin      func() func(context.Context) ([]byte, time.Time)
	ctx        context.Context
	stop       context.CancelFunc

	mu      sync.Mutex
	streams int           // guarded by mu
	running bool          // guarded by mu; whether the goroutine runs
	newest  []byte        // guarded by mu; its bytes do not change; nil before the first event
	next    chan struct{} // guarded by mu; closed when there is a newer event
}

// NewFeed returns a feed with at most maxStreams streams. With the first stream, the feed calls
// begin, and then repeatedly the function that begin has returned: it returns an event, and the
// time of its next call. Its context is cancelled by Close. Both run in the feed's goroutine.
func NewFeed(maxStreams int, begin func() func(context.Context) ([]byte, time.Time)) *Feed {
	f := &Feed{Timeout: WriteTimeout, maxStreams: maxStreams, begin: begin, next: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends the streams and refuses new ones. It does not wait, and may be called again.
func (f *Feed) Close() { f.stop() }

// Event returns a server-sent event. Its data is a JSON text without line breaks.
func Event(name string, data []byte) []byte {
	return append(append(append(append([]byte("event: "), name...), "\ndata: "...), data...), "\n\n"...)
}

// Pause returns the minimum time between the starts of two reads if the last one took as long as
// took: a second, or long enough to keep the time spent on reading at 5 %.
func Pause(took time.Duration) time.Duration { return max(time.Second, 20*took) }

// Streams returns the number of streams.
func (f *Feed) Streams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams
}

// join adds a stream.
func (f *Feed) join() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return ErrClosed
	}
	if f.streams == f.maxStreams {
		return ErrTooMany
	}
	f.streams++
	if !f.running {
		f.running = true
		go f.run()
	}
	return nil
}

func (f *Feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams--
}

func (f *Feed) latest() ([]byte, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest, f.next
}

// publish makes an event the newest. If there is no stream, it reports false, and the feed's
// goroutine ends.
func (f *Feed) publish(event []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == 0 {
		f.running, f.newest = false, nil
		return false
	}
	f.newest = event
	close(f.next)
	f.next = make(chan struct{})
	return true
}

// run makes events until there is no stream, or the feed is closed.
func (f *Feed) run() {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	for next := f.begin(); ; {
		event, at := next(ctx)
		if !f.publish(event) {
			return
		}
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done(): // the streams end
			return
		}
	}
}

// Serve sends events until the client disconnects, the feed is closed or more reports false.
// Unless more is nil, Serve calls it before each event, and sends the bytes that it returns
// after the event.
func (f *Feed) Serve(w http.ResponseWriter, r *http.Request, more func() ([]byte, bool)) error {
	head := w.Header()
	if r.Method == http.MethodHead { // matched by a pattern for GET, but a stream's HEAD must end
		head.Set("Content-Type", "text/event-stream")
		return nil
	}
	if err := f.join(); err != nil {
		return err
	}
	defer f.leave()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // otherwise a proxy may buffer events
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		// The server's WriteTimeout is for the whole response, so each event gets its own
		// deadline instead. If the writer does not support deadlines, no stream lasts longer
		// than WriteTimeout.
		_ = out.SetWriteDeadline(time.Now().Add(f.Timeout))
		if _, err := w.Write(text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send([]byte("retry: 1000\n\n")) {
		return nil
	}
	for {
		text, next := f.latest()
		if text != nil {
			var rest []byte
			if more != nil {
				var ok bool
				if rest, ok = more(); !ok {
					return nil
				}
			}
			if !send(text) || len(rest) > 0 && !send(rest) {
				return nil
			}
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return nil
		case <-f.ctx.Done():
			return nil
		}
	}
}
