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

// Wait has a request wait until ready returns true, and reports whether it is to be
// answered: then the handler writes the answer. If not, it is answered already, or its
// client has hung up, and the handler returns.
//
// ready is called as the TryComplete of an operation is that watches keys: see
// [purgatory.Purgatory.Await]. Everything else is as the zero [Options] have it: see
// [Polls.Serve], which is for all others.
func Wait[K comparable](w http.ResponseWriter, r *http.Request, p *purgatory.Purgatory[K], ready func() bool, keys ...K) bool {
	return defaults.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return p.Await(ctx, timeout, ready, keys...)
	})
}

// WaitGoals is [Wait] on a Threshold: until as many of the goals are reached as need says;
// see [purgatory.Threshold.Await].
func WaitGoals[K comparable, N cmp.Ordered](w http.ResponseWriter, r *http.Request, t *purgatory.Threshold[K, N], need purgatory.Need, goals ...purgatory.Goal[K, N]) bool {
	return defaults.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return t.Await(ctx, timeout, need, goals...)
	})
}

// Default returns the polls of [Wait] and [WaitGoals], all in this process, for what
// publishes their [Polls.Stats].
func Default() *Polls { return defaults }

var defaults, _ = New(Options{}) // which are in range

// Polls is how the polls of a service wait, and what became of them. Make one with [New]: the
// zero Polls is not usable, and its methods panic. All methods are safe for use from any
// goroutine.
type Polls struct {
	options Options

	mu      sync.Mutex
	clients map[string]int // guarded by mu: polls that wait; none is 0
	stats   Stats          // guarded by mu
}

// Stats is what waits and what became of the polls.
type Stats struct {
	Pending int // polls
	Clients int // that have one waiting; 0 without Options.Client

	Ready   uint64 // handed back to the handler, to be answered
	Expired uint64 // 204: nothing came in time
	HungUp  uint64 // 503: the request's context was done, as a rule because the client has gone
	Invalid uint64 // 400: the query's wait cannot be read
	Limited uint64 // 429: beyond Options.MaxPerClient
	Refused uint64 // 503: the purgatory is full, or closed
	Failed  uint64 // 500: await has returned another error, which went to Options.OnError, or something panicked

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

// Len returns the number of polls that wait.
func (p *Polls) Len() int { return p.Stats().Pending }

// Stats returns the figures, those of one moment.
func (p *Polls) Stats() Stats {
	p.mustBeMade()
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Clients = len(p.clients)
	return st
}

// Serve has a request wait, and reports whether it is to be answered by the handler; if
// not, Serve has answered, or there is nobody to answer. It calls await once, which waits
// for as long as it is told, or until ctx is done:
//
//	polls.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
//		return threshold.Await(ctx, timeout, purgatory.All, goal)
//	})
//
// It is the Await of a Purgatory, a Threshold or Futures, or returns as they do. It must
// not use w: with Options.KeepAwake bytes are written meanwhile, on another goroutine, which
// is done with w when Serve returns.
//
// The answers of Serve are 204 when the time is up; 400 for a query that cannot be read;
// 429, and 503 where await is refused (purgatory.ErrFull) or ended by a shutdown
// (purgatory.ErrClosed) or a CancelForKey (purgatory.ErrCancelled), with a Retry-After; 500
// for any other error, which goes to Options.OnError. A cause that is given to CancelForKey
// is another error, unless it wraps purgatory.ErrCancelled. After a shutdown the
// connection is closed, so that the client comes back to another server. The request's
// context is done when the client hangs up; where a server's BaseContext or a middleware's
// timeout has ended it, and the client is still there, it gets 503 with a Retry-After too.
//
// No cache keeps these answers: their Cache-Control is no-store, and an ETag, Last-Modified
// or Expires that the handler has set before does not go out with them, nor do its
// Content-Type and Content-Length. Its Content-Encoding does, as it may be a middleware's
// that compresses; there is no text beside it then.
//
// Once a byte of Options.KeepAwake has gone out the status is 200 and cannot change any
// more. A poll whose time is up then ends without more. One that would get 503 or 500 ends
// with a panic of http.ErrAbortHandler, at which net/http breaks the response off: its
// client sees an error, and not an empty answer that looks whole. So is one whose client
// takes no data: a byte that is still being written when await returns has five seconds to
// go out, whether there is a WriteTimeout or not. This needs a w with an Unwrap method, and
// over HTTP/2 a connection that takes anything: http.HTTP2Config.WriteByteTimeout ends one
// that does not.
//
// The request's body must have been read to its end: until then net/http does not notice
// that a client hangs up. Serve moves the deadline that the server's WriteTimeout has set,
// so that it does not end the poll while it waits; when Serve returns, the handler has the
// whole WriteTimeout for its answer. It cannot do so where w is a middleware's writer that
// has no Unwrap method, which http.ResponseController needs: a poll then waits for three
// quarters of the WriteTimeout at most, so that it is answered while it still can be.
func (p *Polls) Serve(w http.ResponseWriter, r *http.Request, await func(ctx context.Context, timeout time.Duration) error) bool {
	p.mustBeMade()
	wait, preferred, err := p.asked(r)
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
	c := conversation{polls: p, w: w, control: http.NewResponseController(w)}
	wait = c.writeWithin(r, wait)
	applied := func() {
		if preferred {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
		}
	}
	if p.options.KeepAwake > 0 { // the header goes out with the first byte; otherwise it takes no memory while the poll waits
		applied()
	}
	err = c.wait(r, wait, await)
	applied()
	c.writeWithin(r, 0)
	switch {
	case err == nil:
		leave(func(st *Stats) { st.Ready++ })
		return true
	case errors.Is(err, purgatory.ErrExpired) && !c.broken:
		leave(func(st *Stats) { st.Expired++ })
		if !c.begun {
			reply(w, http.StatusNoContent, "")
		}
	case errors.Is(err, purgatory.ErrFull):
		leave(func(st *Stats) { st.Refused++ })
		c.retryLater("too many polls wait here")
	case errors.Is(err, purgatory.ErrClosed):
		leave(func(st *Stats) { st.Refused++ })
		w.Header().Set("Connection", "close")
		c.retryLater("the server is shutting down")
	case r.Context().Err() != nil || c.broken:
		leave(func(st *Stats) { st.HungUp++ })
		c.retryLater("the poll was ended") // nobody reads it if the client has hung up
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

// enter counts a poll in; ok is false if its client has enough of them.
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

// leave counts a poll out.
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

// retryLater answers that the client is to come again later.
func (p *Polls) retryLater(w http.ResponseWriter, status int, text string) {
	seconds := int64((p.options.RetryAfter + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(seconds+rand.Int64N(seconds+1), 10))
	reply(w, status, text)
}

// reply writes an answer of Serve's own. What the handler has set for the one that it
// hoped for would have a cache keep this one, or would be wrong of it.
func reply(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Type", "Etag", "Expires", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	if text == "" || h.Get("Content-Encoding") != "" {
		// Either a middleware has set the encoding, which compresses what is written,
		// and it must stay (go.dev/issue/66343), or the handler, and the text is not in
		// it. No text is right both times.
		w.WriteHeader(status)
		return
	}
	http.Error(w, text, status)
}
