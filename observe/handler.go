package observe

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/internal/webpage"
)

// Handler serves the page and its data. Make one with [NewHandler].
//
//	GET /               the page
//	GET /snapshot.json  all metrics: a Snapshot
//	GET /lists.json     pending operations of a source, ?kind= and ?name=: a Lists
//	GET /search.json    pending operations with a key that contains ?key=: a Found
//	GET /events         the page's stream of server-sent events
//
// It does not authenticate: every client that reaches it sees keys. Put it behind a proxy that
// authenticates, or listen on loopback. A page of another site, open in a browser on this
// machine, can still reach loopback through a domain name of its own that resolves to it.
// [NewServer] refuses such requests by their Host, and your own server should too.
//
// No request changes the state of a source. Regardless of the number of clients, the snapshots
// of all pages take at most 5 % of a processor, those of snapshot.json another 5 %, and the
// lists 5 % for each source whose lists are open; [Custom] sources come on top. A search takes
// half a processor, for at most 20 s; only one search runs at a time for all clients.
// snapshot.json is up to a second old, or up to 20 times as old as it took to make, not counting
// the time that it waited for custom sources.
type Handler struct {
	mux      http.ServeMux
	registry *Registry
	feed     *webpage.Feed
	snapshot snapshotCache
	search   chan struct{} // capacity 1: at most one search runs
}

// NewHandler makes a handler. It runs no goroutine while the page is not open anywhere.
//
// The paths are those above, so mount it with [http.StripPrefix]. Close the handler when the
// server shuts down; Shutdown would otherwise wait for the streams:
//
//	server.RegisterOnShutdown(handler.Close)
func NewHandler(r *Registry) *Handler {
	h := &Handler{registry: r, feed: newFeed(r), snapshot: snapshotCache{lock: make(chan struct{}, 1)}, search: make(chan struct{}, 1)}
	webpage.Handle(&h.mux, page())
	h.mux.HandleFunc("GET /snapshot.json", h.serveSnapshot)
	h.mux.HandleFunc("GET /lists.json", h.serveLists)
	h.mux.HandleFunc("GET /search.json", h.serveSearch)
	h.mux.HandleFunc("GET /events", h.serveEvents)
	return h
}

// ServeHTTP is part of [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeader(w.Header())
	if webpage.Redirect(w, r) {
		return
	}
	h.mux.ServeHTTP(w, r)
}

// Close ends the streams and refuses new ones. It does not wait, and may be called again.
func (h *Handler) Close() { h.feed.Close() }

func (h *Handler) serveSnapshot(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, h.snapshot.get(h.registry))
}

// snapshotCache caches a snapshot for a second, or longer if needed to keep the time spent on
// snapshots below 5 %.
type snapshotCache struct {
	lock     chan struct{} // capacity 1: the sender may use the other fields
	snapshot Snapshot
	expires  time.Time // when the snapshot expires
}

// get returns the cached snapshot, waits for one in progress, or makes one.
func (x *snapshotCache) get(r *Registry) Snapshot {
	x.lock <- struct{}{}
	defer func() { <-x.lock }()
	begun := time.Now()
	if begun.Before(x.expires) {
		return x.snapshot
	}
	ctx, cancel := context.WithTimeout(context.Background(), stuckAfter)
	defer cancel()
	snap, waited := r.snapshot(ctx)
	// A request that waited here for custom sources must not wait as long again.
	x.snapshot, x.expires = snap, begun.Add(waited+webpage.Pause(time.Since(begun)-waited))
	return snap
}

// Lists describes the pending operations of a source.
type Lists struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Keys   []HotKey `json:"keys"`   // the 20 with the most operations
	Oldest []Group  `json:"oldest"` // at most 20 groups, of the 200 oldest operations
}

func (h *Handler) serveLists(w http.ResponseWriter, r *http.Request) {
	if e := h.listable(w, r); e != nil {
		writeJSON(w, e.lists())
	}
}

// Found is the result of a search.
type Found struct {
	Found []Waiting `json:"found"` // at most 100, in no order
	More  bool      `json:"more"`  // whether there are more than 100
	// TimedOut reports whether the search stopped after 20 s and so may have missed operations.
	TimedOut bool `json:"timed_out"`
}

// maxSearch limits the search text, in bytes; searchFor limits the duration of a search.
const (
	maxSearch = 1 << 10
	searchFor = 20 * time.Second
)

func (h *Handler) serveSearch(w http.ResponseWriter, r *http.Request) {
	text := r.FormValue("key")
	if n := len(text); n == 0 || n > maxSearch {
		http.Error(w, "key has "+strconv.Itoa(n)+" bytes, must be 1 to "+strconv.Itoa(maxSearch), http.StatusBadRequest)
		return
	}
	e := h.listable(w, r)
	if e == nil {
		return
	}
	select {
	case h.search <- struct{}{}:
		defer func() { <-h.search }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another search is running", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), searchFor)
	defer cancel()
	var f Found
	f.Found, f.More, f.TimedOut = search(ctx, e.source, text)
	writeJSON(w, f)
}

// listable returns the source that a request names, or answers with an error and returns nil.
func (h *Handler) listable(w http.ResponseWriter, r *http.Request) *entry {
	kind, name := r.FormValue("kind"), r.FormValue("name")
	e := h.registry.find(kind, name)
	switch {
	case e == nil:
		http.Error(w, "no source has this kind and name", http.StatusNotFound)
		return nil
	case e.source.walk == nil:
		http.Error(w, "what this source holds cannot be listed", http.StatusNotFound)
		return nil
	}
	return e
}

// writeTimeout limits how long a client may take to read one response or event. A test sets it.
var writeTimeout = webpage.WriteTimeout

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("observe: " + err.Error())
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// listCache caches the lists of a source, long enough to keep the time spent on reading them below
// 5 %.
type listCache struct {
	mu      sync.Mutex
	lists   Lists     // guarded by mu
	expires time.Time // guarded by mu; when the lists expire
}

// lists returns the cached lists of a source, waits for a read in progress, or reads them.
func (e *entry) lists() Lists {
	x := &e.listCache
	x.mu.Lock()
	defer x.mu.Unlock()
	begun := time.Now()
	if begun.Before(x.expires) {
		return x.lists
	}
	lists := Lists{Kind: e.kind, Name: e.name, Keys: []HotKey{}}
	if e.source.hot != nil {
		lists.Keys = e.source.hot(listed)
	}
	lists.Oldest = e.source.oldest()
	x.lists, x.expires = lists, begun.Add(webpage.Pause(time.Since(begun)))
	return lists
}
