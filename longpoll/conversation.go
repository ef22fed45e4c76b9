package longpoll

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// conversation is one poll and its answer.
type conversation struct {
	polls   *Polls
	w       http.ResponseWriter
	control *http.ResponseController

	// While a poll waits, these and w are the keeper's.

	begun  bool // the status and bytes may have gone out: only a body can follow
	broken bool // a byte could not be written
}

// wait calls await, and sends a byte now and then while that waits, if it is to.
func (c *conversation) wait(r *http.Request, wait time.Duration, await func(context.Context, time.Duration) error) error {
	ctx, each := r.Context(), c.polls.options.KeepAwake
	if each == 0 || wait <= each || r.Method == http.MethodHead { // which has no body
		return await(ctx, wait)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := keeper{conversation: c, each: each, until: time.Now().Add(wait), cancel: cancel}
	k.start()
	defer k.stop()
	return await(ctx, wait)
}

// retryLater answers that the client is to come again later.
func (c *conversation) retryLater(text string) {
	c.abort()
	c.polls.retryLater(c.w, http.StatusServiceUnavailable, text)
}

func (c *conversation) fail(text string) {
	c.abort()
	reply(c.w, http.StatusInternalServerError, text)
}

// abort breaks the response off if a part of it has gone out.
func (c *conversation) abort() {
	if c.begun {
		panic(http.ErrAbortHandler)
	}
}

// writeWithin moves the deadline by which the answer must be written, if the server has
// one: to its WriteTimeout from when the poll can have ended. It returns how long the poll
// can wait, which is less if the deadline cannot be moved. Without a WriteTimeout nothing
// is touched: net/http would not set it back for the connection's next request.
func (c *conversation) writeWithin(r *http.Request, wait time.Duration) time.Duration {
	srv, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if srv == nil || srv.WriteTimeout <= 0 {
		return wait
	}
	if c.control.SetWriteDeadline(time.Now().Add(wait).Add(srv.WriteTimeout)) != nil {
		// A middleware's writer, as a rule, that does not let the controller through. The
		// deadline has stood since the header was read, and passes while the poll waits
		// or just before its answer: the connection would be closed without one.
		return min(wait, srv.WriteTimeout/4*3)
	}
	return wait
}

// lastByte is how long a byte may still take that is being written when its poll ends.
const lastByte = 5 * time.Second

// keeper sends a byte now and then while a poll waits. It has no goroutine while it sends
// nothing.
type keeper struct {
	*conversation
	each   time.Duration
	until  time.Time // the poll is over, and nothing is sent
	cancel context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	sending bool        // guarded by mu: the writer, begun and broken are tick's
	ended   bool        // guarded by mu: nothing is sent any more
	sent    sync.Cond   // signalled when sending ends; L is &mu

	panicked any // as begun: by the writer
}

func (k *keeper) start() {
	k.sent.L = &k.mu
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(k.each, k.tick)
}

// stop returns when the writer is not used any more, and never will be. A panic of the
// writer goes on here, on the handler's goroutine.
func (k *keeper) stop() {
	k.mu.Lock()
	k.ended = true
	k.timer.Stop()
	sending := k.sending
	k.mu.Unlock()
	if sending {
		k.finish()
	}
	if k.panicked != nil {
		panic(k.panicked)
	}
}

// finish waits for the byte that is being written. A client that takes no data would hold
// it for ever where the server has no WriteTimeout, and the handler and the server's
// Shutdown with it.
func (k *keeper) finish() {
	bounded := k.control.SetWriteDeadline(time.Now().Add(lastByte)) == nil
	k.mu.Lock()
	for k.sending {
		k.sent.Wait()
	}
	k.mu.Unlock()
	if bounded && !k.broken {
		// For the answer, and for the connection's next request: net/http sets a new
		// deadline only where there is a WriteTimeout. One that the handler has set
		// before Serve is lost: it cannot be asked for.
		_ = k.control.SetWriteDeadline(time.Time{})
	}
}

// tick sends a byte and has the next one sent.
func (k *keeper) tick() {
	k.mu.Lock()
	ended := k.ended
	k.sending = !ended
	k.mu.Unlock()
	if ended {
		return
	}
	more := false
	k.broken = true // unless send returns
	defer func() {
		k.panicked = recover()
		if k.broken {
			k.cancel()
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.sending = false
		k.sent.Signal()
		if more && !k.ended && time.Until(k.until) > k.each {
			k.timer.Reset(k.each)
		}
	}()
	err := k.send()
	more = err == nil
	// A writer that keeps all that is written is not broken: the poll waits in one piece.
	k.broken = err != nil && !errors.Is(err, http.ErrNotSupported)
}

// send sends a byte. It flushes first, when nothing has gone out: the error of a writer that
// cannot comes while the status is still free.
func (k *keeper) send() error {
	if !k.begun {
		err := k.control.Flush()
		if errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if k.begun = true; err != nil {
			return err
		}
	}
	if _, err := k.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	return k.control.Flush()
}
