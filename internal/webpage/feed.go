package webpage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// The errors of [Feed.Serve], which has not written a reply then.
var (
	ErrClosed  = errors.New("the server is shutting down")
	ErrTooMany = errors.New("too many pages are open: close one")
)

// WriteTimeout is how long a reader may take for one reply, or for one event.
const WriteTimeout = 10 * time.Second

// Feed sends events to the streams of all open pages. One goroutine makes the events while there
// is a stream, and each stream sends the newest event when it has sent the last one. So a slow
// reader misses some, and one that never reads costs its connection's buffer. Make one with
// [NewFeed]. It can be used by several goroutines at once.
type Feed struct {
	// Timeout is how long a reader may take for one event. Default [WriteTimeout]. It must be set
	// before the first stream.
	Timeout time.Duration

	most  int
	begin func() func(context.Context) ([]byte, time.Time)
	ctx   context.Context
	stop  context.CancelFunc

	mu      sync.Mutex
	streams int           // guarded by mu
	running bool          // guarded by mu; whether the goroutine runs
	newest  []byte        // guarded by mu; its bytes do not change. nil: there is no event yet
	next    chan struct{} // guarded by mu; closed when there is a newer event
}

// NewFeed returns a feed of at most most streams. When there is a first stream, the feed calls
// begin, and then, again and again, the function that begin has returned: it returns an event,
// and when to call it next. Its context ends with Close. Both run in the feed's goroutine.
func NewFeed(most int, begin func() func(context.Context) ([]byte, time.Time)) *Feed {
	f := &Feed{Timeout: WriteTimeout, most: most, begin: begin, next: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends the streams, and refuses new ones. It does not wait, and may be called again.
func (f *Feed) Close() { f.stop() }

// Event returns a server-sent event. Its data is a JSON text without line breaks.
func Event(name string, data []byte) []byte {
	return append(append(append(append([]byte("event: "), name...), "\ndata: "...), data...), "\n\n"...)
}

// Pause returns the least time from the start of one reading to that of the next, if the last took
// as long as took: a second, or so long that reading takes 5 % of the time.
func Pause(took time.Duration) time.Duration { return max(time.Second, 20*took) }

// Streams returns how many streams there are.
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
	if f.streams == f.most {
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

// publish makes an event the newest. It reports false, and ends the feed's goroutine, if there is
// no stream.
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

// Serve sends events until the client leaves, the feed is closed or more reports false. It calls
// more, unless more is nil, before each event, and sends the bytes that more returns after it.
func (f *Feed) Serve(w http.ResponseWriter, r *http.Request, more func() ([]byte, bool)) error {
	head := w.Header()
	if r.Method == http.MethodHead { // which a pattern for GET matches: it has no end to wait for
		head.Set("Content-Type", "text/event-stream")
		return nil
	}
	if err := f.join(); err != nil {
		return err
	}
	defer f.leave()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // or a proxy may keep events back
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		// The server's WriteTimeout is for the whole response: each event has its own instead. A
		// writer without deadlines has no stream that is longer than that.
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
