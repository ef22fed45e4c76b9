package longpoll

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// exchange is one poll and its answer.
type exchange struct {
	polls   *Polls
	w       http.ResponseWriter
	control *http.ResponseController

	// While a poll waits, only its keepAlive uses these and w.

	headerSent  bool // the status and bytes may have been sent: only a body can follow
	writeFailed bool // a byte could not be written
}

// wait calls await and, with KeepAwake, sends a byte periodically until it returns.
func (c *exchange) wait(r *http.Request, wait time.Duration, await func(context.Context, time.Duration) error) error {
	ctx, interval := r.Context(), c.polls.options.KeepAwake
	if interval == 0 || wait <= interval || r.Method == http.MethodHead { // HEAD has no body
		return await(ctx, wait)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := keepAlive{exchange: c, interval: interval, deadline: time.Now().Add(wait), cancel: cancel}
	k.start()
	defer k.stop()
	return await(ctx, wait)
}

// retryLater answers with a Retry-After.
func (c *exchange) retryLater(text string) {
	c.abort()
	c.polls.retryLater(c.w, http.StatusServiceUnavailable, text)
}

func (c *exchange) fail(text string) {
	c.abort()
	reply(c.w, http.StatusInternalServerError, text)
}

// abort aborts the response if a part of it has been sent.
func (c *exchange) abort() {
	if c.headerSent {
		panic(http.ErrAbortHandler)
	}
}

// extendWriteDeadline moves the deadline for writing the answer, if the server has one: to its
// WriteTimeout after the last moment at which the poll can end. It returns how long the poll
// can wait, which is less if the deadline cannot be moved. Without a WriteTimeout it sets no
// deadline: net/http would not reset it for the connection's next request.
func (c *exchange) extendWriteDeadline(r *http.Request, wait time.Duration) time.Duration {
	srv, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if srv == nil || srv.WriteTimeout <= 0 {
		return wait
	}
	if c.control.SetWriteDeadline(time.Now().Add(wait).Add(srv.WriteTimeout)) != nil {
		// Usually a middleware's writer that the controller cannot unwrap. The deadline was set
		// when the header was read, and passes while the poll waits or just before its answer:
		// the connection would be closed without an answer.
		return min(wait, srv.WriteTimeout/4*3)
	}
	return wait
}

// lastByteTimeout bounds the writing of a byte that is in progress when its poll ends.
const lastByteTimeout = 5 * time.Second

// keepAlive sends a byte periodically while a poll waits. It has no goroutine in between.
type keepAlive struct {
	*exchange
	interval time.Duration
	deadline time.Time // the end of the poll; no byte is sent afterwards
	cancel   context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	sending bool        // guarded by mu: tick is using the writer, headerSent and writeFailed
	ended   bool        // guarded by mu: no byte is sent any more
	sent    sync.Cond   // signalled when sending ends; L is &mu

	panicked any // the writer's panic; synchronized as headerSent is
}

func (k *keepAlive) start() {
	k.sent.L = &k.mu
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(k.interval, k.tick)
}

// stop returns when the writer is not used any more, and never will be. It repeats a panic of
// the writer, on the handler's goroutine.
func (k *keepAlive) stop() {
	k.mu.Lock()
	k.ended = true
	k.timer.Stop()
	sending := k.sending
	k.mu.Unlock()
	if sending {
		k.awaitWrite()
	}
	if k.panicked != nil {
		panic(k.panicked)
	}
}

// awaitWrite waits for the byte that is being written, for at most lastByteTimeout if the writer
// accepts a deadline. Without a server's WriteTimeout a client that accepts no data would block
// it for ever, and with it the handler and the server's Shutdown.
func (k *keepAlive) awaitWrite() {
	bounded := k.control.SetWriteDeadline(time.Now().Add(lastByteTimeout)) == nil
	k.mu.Lock()
	for k.sending {
		k.sent.Wait()
	}
	k.mu.Unlock()
	if bounded && !k.writeFailed {
		// Remove the deadline for the answer, and for the connection's next request: net/http
		// sets a new deadline only with a WriteTimeout. A deadline that the handler has set
		// before Serve is lost, because it cannot be read.
		_ = k.control.SetWriteDeadline(time.Time{})
	}
}

// tick sends a byte and schedules the next one.
func (k *keepAlive) tick() {
	k.mu.Lock()
	ended := k.ended
	k.sending = !ended
	k.mu.Unlock()
	if ended {
		return
	}
	more := false
	k.writeFailed = true // until send returns
	defer func() {
		k.panicked = recover()
		if k.writeFailed {
			k.cancel()
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.sending = false
		k.sent.Signal()
		if more && !k.ended && time.Until(k.deadline) > k.interval {
			k.timer.Reset(k.interval)
		}
	}()
	err := k.send()
	more = err == nil
	// A writer that buffers all output is not broken: the poll waits without further bytes.
	k.writeFailed = err != nil && !errors.Is(err, http.ErrNotSupported)
}

// send sends a byte. Before the first one it flushes: if the writer cannot, the error comes
// while the status can still change.
func (k *keepAlive) send() error {
	if !k.headerSent {
		err := k.control.Flush()
		if errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if k.headerSent = true; err != nil {
			return err
		}
	}
	if _, err := k.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	return k.control.Flush()
}
