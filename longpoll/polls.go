package longpoll

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// Wait blocks a request until ready returns true, and reports whether the handler must answer
// it. If not, the request is already answered, or its client has disconnected, and the handler
// must return.
//
// ready is called as the TryComplete of an operation that watches keys: see
// [purgatory.Purgatory.Await]. Everything else is as with the zero [Options]: see
// [Polls.Serve], which is for other cases.
func Wait[K comparable](w http.ResponseWriter, r *http.Request, p *purgatory.Purgatory[K], ready func() bool, keys ...K) bool {
	return defaults.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return p.Await(ctx, timeout, ready, keys...)
	})
}

// WaitGoals is [Wait] on a Threshold: it waits until as many of the goals are reached as need
// says; see [purgatory.Threshold.Await].
func WaitGoals[K comparable, N cmp.Ordered](w http.ResponseWriter, r *http.Request, t *purgatory.Threshold[K, N], need purgatory.Need, goals ...purgatory.Goal[K, N]) bool {
	return defaults.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return t.Await(ctx, timeout, need, goals...)
	})
}

// Default returns the polls of all [Wait] and [WaitGoals] calls in this process, so that their
// [Polls.Stats] can be published.
func Default() *Polls { return defaults }

var defaults, _ = New(Options{}) // the zero Options are in range

// Polls configures and counts the polls of a service. Make one with [New]: the zero Polls is
// not usable, and its methods panic. All methods are safe for use from any goroutine.
type Polls struct {
	options Options

	mu      sync.Mutex
	clients map[string]int // guarded by mu: pending polls by client; no value is 0
	stats   Stats          // guarded by mu
}

// Stats are the statistics of polls.
type Stats struct {
	Pending int // pending polls
	Clients int // clients with a pending poll; 0 without Options.Client

	Ready        uint64 // returned to the handler, which answers
	Expired      uint64 // 204: nothing became ready in time
	Disconnected uint64 // 503: the request's context was done, usually because the client has disconnected
	Invalid      uint64 // 400: the query's wait is not valid
	Limited      uint64 // 429: beyond Options.MaxPerClient
	Refused      uint64 // 503: the purgatory is full, or closed
	Failed       uint64 // 500: another error of await, which went to Options.OnError, or a panic

	Cancelled uint64 // 503: by CancelForKey
}

// New makes polls. An option out of range is an error that names it.
func New(o Options) (*Polls, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Polls{options: o, clients: map[string]int{}}, nil
}

func (p *Polls) mustBeMade() {
	if p.clients == nil {
		panic("longpoll: the zero Polls is not usable, make one with New")
	}
}

// Len returns the number of pending polls.
func (p *Polls) Len() int { return p.Stats().Pending }

// Stats returns the statistics of one moment.
func (p *Polls) Stats() Stats {
	p.mustBeMade()
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Clients = len(p.clients)
	return st
}

// Serve blocks a request, and reports whether the handler must answer it. If not, Serve has
// answered, or the client has disconnected. It calls await once, which waits for the given
// timeout, or until ctx is done:
//
//	polls.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
//		return threshold.Await(ctx, timeout, purgatory.All, goal)
//	})
//
// await calls the Await of a Purgatory, a Threshold or Futures, or returns as they do. It must
// not use w: with Options.KeepAwake another goroutine writes bytes to w during await, and no
// longer when Serve returns.
//
// Serve answers
//   - 204 when the time has passed;
//   - 400 for an invalid query;
//   - 429 with a Retry-After beyond Options.MaxPerClient;
//   - 503 with a Retry-After if await was refused (purgatory.ErrFull), or ended by a shutdown
//     (purgatory.ErrClosed) or a CancelForKey (purgatory.ErrCancelled); also if a server's
//     BaseContext or a middleware's timeout has ended the request's context, and the client is
//     still connected;
//   - 500 for any other error, which goes to Options.OnError. A cause given to CancelForKey is
//     such an error, unless it wraps purgatory.ErrCancelled.
//
// After a shutdown the connection is closed, so that the client reconnects to another server.
// Nothing is sent to a client that has disconnected, which ends the request's context.
//
// No cache stores these answers: their Cache-Control is no-store, and Serve removes an ETag,
// Last-Modified, Expires, Content-Type or Content-Length that the handler has set before. It
// keeps a Content-Encoding, which a compressing middleware may have set, and then sends no
// text.
//
// Once a byte of Options.KeepAwake has been sent the status is 200 and cannot change. A poll
// that expires then ends without further data. A poll that would get 503 or 500 ends with a
// panic of http.ErrAbortHandler, at which net/http aborts the response: the client sees an
// error, and not an empty answer that looks complete. The same happens if the client accepts no
// data: a byte that is still being written when await returns has five seconds to be sent,
// whether there is a WriteTimeout or not. This needs a w with an Unwrap method, and over HTTP/2
// a connection that accepts data: http.HTTP2Config.WriteByteTimeout ends one that does not.
//
// The request's body must have been read to its end: until then net/http does not detect that
// the client disconnects. Serve moves the deadline that the server's WriteTimeout has set, so
// that it does not end a waiting poll; when Serve returns, the handler has the whole
// WriteTimeout for its answer. Serve cannot move it if w is a middleware's writer without an
// Unwrap method, which http.ResponseController needs: a poll then waits for at most three
// quarters of the WriteTimeout, so that it can still be answered.
func (p *Polls) Serve(w http.ResponseWriter, r *http.Request, await func(ctx context.Context, timeout time.Duration) error) bool {
	p.mustBeMade()
	wait, preferred, err := p.requestedWait(r)
	if err != nil {
		p.count(func(st *Stats) { st.Invalid++ })
		reply(w, http.StatusBadRequest, err.Error())
		return false
	}
	client, ok := p.enter(r)
	if !ok {
		p.retryLater(w, http.StatusTooManyRequests, "too many polls of one client wait here")
		return false
	}
	counted := false
	leave := func(count func(*Stats)) {
		counted = true
		p.leave(client, count)
	}
	defer func() {
		if !counted { // await, the context or the writer has panicked
			p.leave(client, func(st *Stats) { st.Failed++ })
		}
	}()
	c := exchange{polls: p, w: w, control: http.NewResponseController(w)}
	wait = c.extendWriteDeadline(r, wait)
	setApplied := func() {
		if preferred {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
		}
	}
	if p.options.KeepAwake > 0 { // sent with the first byte; otherwise set later, to save memory
		setApplied()
	}
	err = c.wait(r, wait, await)
	setApplied()
	c.extendWriteDeadline(r, 0)
	switch {
	case err == nil:
		leave(func(st *Stats) { st.Ready++ })
		return true
	case errors.Is(err, purgatory.ErrExpired) && !c.writeFailed:
		leave(func(st *Stats) { st.Expired++ })
		if !c.headerSent {
			reply(w, http.StatusNoContent, "")
		}
	case errors.Is(err, purgatory.ErrFull):
		leave(func(st *Stats) { st.Refused++ })
		c.retryLater("too many polls wait here")
	case errors.Is(err, purgatory.ErrClosed):
		leave(func(st *Stats) { st.Refused++ })
		w.Header().Set("Connection", "close")
		c.retryLater("the server is shutting down")
	case r.Context().Err() != nil || c.writeFailed:
		leave(func(st *Stats) { st.Disconnected++ })
		c.retryLater("the poll was ended") // not read if the client has disconnected
	case errors.Is(err, purgatory.ErrCancelled):
		leave(func(st *Stats) { st.Cancelled++ })
		c.retryLater("the poll was cancelled")
	default:
		leave(func(st *Stats) { st.Failed++ })
		p.options.OnError(r, err)
		c.fail("the poll cannot be answered")
	}
	return false
}

// enter counts a poll as pending; ok is false if its client has too many.
func (p *Polls) enter(r *http.Request) (client string, ok bool) {
	if p.options.Client != nil {
		client = p.options.Client(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.options.Client != nil {
		if p.clients[client] >= p.options.MaxPerClient {
			p.stats.Limited++
			return "", false
		}
		p.clients[client]++
	}
	p.stats.Pending++
	return client, true
}

// leave removes a poll from the pending ones.
func (p *Polls) leave(client string, count func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.options.Client != nil {
		if p.clients[client]--; p.clients[client] == 0 {
			delete(p.clients, client)
		}
	}
	p.stats.Pending--
	count(&p.stats)
}

func (p *Polls) count(count func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count(&p.stats)
}

// retryLater answers with a Retry-After.
func (p *Polls) retryLater(w http.ResponseWriter, status int, text string) {
	seconds := int64((p.options.RetryAfter + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(seconds+rand.Int64N(seconds+1), 10))
	reply(w, status, text)
}

// reply writes an answer of Serve's own. It removes headers that the handler has set for its
// own answer, with which a cache would store this one, or which would be wrong.
func reply(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Type", "Etag", "Expires", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	if text == "" || h.Get("Content-Encoding") != "" {
		// Either a compressing middleware has set the encoding, and it must stay
		// (go.dev/issue/66343), or the handler has, and the text is not encoded so. No text is
		// right in both cases.
		w.WriteHeader(status)
		return
	}
	http.Error(w, text, status)
}
