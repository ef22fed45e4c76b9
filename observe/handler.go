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

// Handler serves the page, and what it is made of. Make one with [NewHandler].
//
//	GET /               the page
//	GET /snapshot.json  all figures: a Snapshot
//	GET /lists.json     what waits at a source, ?kind= and ?name=: a Lists
//	GET /search.json    those one of whose keys contains ?key=: a Found
//	GET /events         the page's stream of server-sent events
//
// It has no lock on it: whoever reaches it sees keys. Put it behind what authenticates,
// or have it listen on loopback. There a page of another site can read it still, from the
// browser of somebody on this machine, under a name of its own that it has lead to loopback:
// [NewServer] refuses that, and so should a server of your own, by the request's Host.
//
// Nothing that it serves changes what is observed. However many look, the snapshots of all
// pages take a twentieth of a processor at most, those of snapshot.json another, and the
// lists one for each source whose lists are looked at; [Custom] sources come on top. A search
// takes half a processor, for 20 s at most; one runs at a time, of all that ask.
// snapshot.json is up to a second old, or up to 20 times as old as making it took, beside the
// time that it waited for custom sources.
type Handler struct {
	mux      http.ServeMux
	registry *Registry
	feed     *webpage.Feed
	snapshot shot
	search   chan struct{} // has room for the one search that may run
}

// NewHandler makes a handler. It has no goroutine while nobody has the page open.
//
// The paths are those above, so mount it with [http.StripPrefix]. Have the server's
// shutdown end the streams, for which it would wait otherwise:
//
//	server.RegisterOnShutdown(handler.Close)
func NewHandler(r *Registry) *Handler {
	h := &Handler{registry: r, feed: newFeed(r), snapshot: shot{making: make(chan struct{}, 1)}, search: make(chan struct{}, 1)}
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

// Close ends the streams, and refuses new ones. It does not wait, and may be called again.
func (h *Handler) Close() { h.feed.Close() }

func (h *Handler) serveSnapshot(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, h.snapshot.newest(h.registry))
}

// shot is a snapshot, kept for a second, or for as long as making it again would take more
// than a twentieth of the time.
type shot struct {
	making   chan struct{} // has room for the one who may read and write the others
	snapshot Snapshot
	again    time.Time // when it may be made again
}

// newest returns the snapshot, or that of the one who makes it at the moment.
func (x *shot) newest(r *Registry) Snapshot {
	x.making <- struct{}{}
	defer func() { <-x.making }()
	begun := time.Now()
	if begun.Before(x.again) {
		return x.snapshot
	}
	ctx, cancel := context.WithTimeout(context.Background(), silentFor)
	defer cancel()
	snap, waited := r.snapshot(ctx)
	// Who came while it waited for custom sources is not to wait as long again.
	x.snapshot, x.again = snap, begun.Add(waited+webpage.Pause(time.Since(begun)-waited))
	return snap
}

// Lists is what waits at a source.
type Lists struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Keys   []HotKey `json:"keys"`   // the 20 that most wait for
	Oldest []Group  `json:"oldest"` // of the 200 that have waited longest, 20 groups
}

func (h *Handler) serveLists(w http.ResponseWriter, r *http.Request) {
	if e := h.listable(w, r); e != nil {
		writeJSON(w, e.lists())
	}
}

// Found is the result of a search.
type Found struct {
	Found []Waiting `json:"found"` // 100 at most, in no order
	More  bool      `json:"more"`  // whether there are more than 100
	// TimedOut is whether the search was ended after 20 s: there may be others among what it
	// had not seen yet.
	TimedOut bool `json:"timed_out"`
}

// maxSearch bounds the text that is searched for, in bytes; searchFor, how long.
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

// listable finds the source that a request names; nil: the error has been answered.
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

// writeTimeout is how long a reader may take for one answer, or one event. A test sets it.
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

// listing is the lists of a source, kept for as long as reading them again would take more
// than a twentieth of the time.
type listing struct {
	mu    sync.Mutex
	lists Lists     // guarded by mu
	again time.Time // guarded by mu; when it may be read again
}

// lists returns the lists of a source, or of the one who reads them at the moment.
func (e *entry) lists() Lists {
	x := &e.listing
	x.mu.Lock()
	defer x.mu.Unlock()
	begun := time.Now()
	if begun.Before(x.again) {
		return x.lists
	}
	lists := Lists{Kind: e.kind, Name: e.name, Keys: []HotKey{}}
	if e.source.hot != nil {
		lists.Keys = e.source.hot(listed)
	}
	lists.Oldest = e.source.oldest()
	x.lists, x.again = lists, begun.Add(webpage.Pause(time.Since(begun)))
	return lists
}
