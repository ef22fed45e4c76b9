package observe

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/internal/webpage"
)

// maxStreams limits the number of open pages.
const maxStreams = 64

// customFor limits how long a snapshot for the page waits for custom sources.
const customFor = 100 * time.Millisecond

// newFeed returns the feed of a registry's snapshots.
func newFeed(r *Registry) *webpage.Feed {
	next := func(context.Context) ([]byte, time.Time) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), customFor)
		defer cancel()
		snapshot, waited := r.snapshot(ctx)
		text := event("snapshot", snapshot)
		return text, begun.Add(webpage.Pause(time.Since(begun) - waited))
	}
	f := webpage.NewFeed(maxStreams, func() func(context.Context) ([]byte, time.Time) { return next })
	f.Timeout = writeTimeout
	return f
}

// event returns a server-sent event whose data is v. Marshalling cannot fail: no number is NaN.
func event(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("observe: " + err.Error())
	}
	return webpage.Event(name, text)
}

// serveEvents sends a snapshot each second, and the lists of the source in ?kind= and ?name=, if
// any.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	kind, name := r.FormValue("kind"), r.FormValue("name")
	if kind != "" && h.listable(w, r) == nil {
		return
	}
	err := h.feed.Serve(w, r, func() ([]byte, bool) {
		// Look the source up each time: it may have been removed and added again.
		if e := h.registry.find(kind, name); e != nil && e.source.walk != nil {
			return event("lists", e.lists()), true
		}
		return nil, true
	})
	if err != nil {
		if errors.Is(err, webpage.ErrTooMany) {
			w.Header().Set("Retry-After", "10")
		}
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
