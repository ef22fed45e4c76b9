package observe

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// feed is the snapshots for all streams: one goroutine makes them, while there is a
// stream, and each stream sends the newest when it is done with the last. So a reader that
// is slow misses some, and one that never reads costs its connection's buffer.
type feed struct {
	registry *Registry
	closed   chan struct{}
	closing  sync.Once

	mu      sync.Mutex
	streams int           // guarded by mu
	running bool          // guarded by mu; whether there is the goroutine
	newest  []byte        // guarded by mu; what it points to does not change. nil: none yet
	next    chan struct{} // guarded by mu; closed when there is a newer one
}

// maxStreams bounds the pages that are open.
const maxStreams = 64

// customFor is how long a snapshot of the page waits for custom sources.
const customFor = 100 * time.Millisecond

func (f *feed) open(r *Registry) {
	f.registry, f.closed, f.next = r, make(chan struct{}), make(chan struct{})
}

func (f *feed) close() { f.closing.Do(func() { close(f.closed) }) }

// join counts a stream in, and sees to it that there is a goroutine; false if there are too
// many.
func (f *feed) join() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == maxStreams {
		return false
	}
	f.streams++
	if !f.running {
		f.running = true
		go f.run()
	}
	return true
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams--
}

// run makes snapshots until nobody is there to see them.
func (f *feed) run() {
	for {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), customFor)
		snapshot, waited := f.registry.snapshot(ctx)
		cancel()
		text := event("snapshot", snapshot)
		next := begun.Add(pause(time.Since(begun) - waited))
		f.mu.Lock()
		if f.streams == 0 {
			f.running, f.newest = false, nil
			f.mu.Unlock()
			return
		}
		f.newest = text
		close(f.next)
		f.next = make(chan struct{})
		f.mu.Unlock()
		select {
		case <-time.After(time.Until(next)):
		case <-f.closed: // the streams end
			f.mu.Lock()
			f.running, f.newest = false, nil
			f.mu.Unlock()
			return
		}
	}
}

// latest returns the newest snapshot, and what is closed when there is a newer one.
func (f *feed) latest() ([]byte, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest, f.next
}

// event is a server-sent event whose data is v as JSON, which has no line breaks. All that
// is sent can be marshalled: no number is NaN.
func event(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("observe: " + err.Error())
	}
	return append(append(append(append([]byte("event: "), name...), "\ndata: "...), text...), "\n\n"...)
}

// serveEvents sends a snapshot each second, and the lists of the source that ?kind= and
// ?name= say, if they do.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	kind, name := r.FormValue("kind"), r.FormValue("name")
	if kind != "" && h.listable(w, r) == nil {
		return
	}
	select {
	case <-h.feed.closed:
		http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
		return
	default:
	}
	if r.Method == http.MethodHead { // which the patterns for GET match: it has no end to wait for
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	if !h.feed.join() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.feed.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or a proxy may keep events back
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		// The server's WriteTimeout is for the whole response: each event has its own
		// instead. Who cannot set one has no stream that is longer than that.
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write(text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send([]byte("retry: 1000\n\n")) {
		return
	}
	for {
		text, next := h.feed.latest()
		if text != nil {
			if !send(text) {
				return
			}
			// Each time anew: one that was removed may have been added again.
			if e := h.registry.find(kind, name); e != nil && e.source.walk != nil && !send(event("lists", e.lists())) {
				return
			}
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-h.feed.closed:
			return
		}
	}
}
