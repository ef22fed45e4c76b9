package wire

import (
	"errors"
	"math"
	"runtime/debug"
	"time"
)

// flushBytes is the size of ready responses at which they are written.
const flushBytes = 64 << 10

// inlineWindow is how long after an event the goroutine that completes requests also sends their
// responses, one for each connection. Other goroutines send the responses of requests completed
// later, so that a producer is not held up by all requests that waited for its record.
const inlineWindow = 100 * time.Microsecond

// outgoing holds the responses being sent. Only the sending goroutine uses it.
type outgoing struct {
	buf     []byte
	replies []*Reply // that buf answers
	size    int64    // of their requests; see queuedSize
	charged int64    // charged to the server's outbound bytes
}

// beginSendingLocked makes the caller the sender, which must call send. It returns false if nothing
// is ready, or if another goroutine is sending, which will find the ready responses.
func (c *Conn) beginSendingLocked() bool {
	if c.sending || c.ended || len(c.queue) == 0 || c.queue[0].build == nil {
		return false
	}
	c.sending = true
	c.senders.Add(1)
	return true
}

// Flush sends the response to the request being handled, if it is ready. It is called when the
// handler returns; a handler that answers early and continues calls it itself.
func (c *Conn) Flush() {
	c.mu.Lock()
	c.handling = nil
	sends := c.beginSendingLocked()
	c.mu.Unlock()
	if sends {
		c.send(true)
	}
}

// send sends responses, in the order of their requests, until none is ready. If inline is true, it
// sends as much of the first one as the kernel takes at once, and a goroutine sends the rest. So
// the caller depends neither on when the client reads nor on its other requests.
func (c *Conn) send(inline bool) {
	if !inline || c.sendSome(1, c.tryWrite) {
		go c.sendSome(math.MaxInt, c.write)
	}
}

// sendSome sends up to most responses. It reports whether a goroutine must continue. A panic is a
// bug, and ends only the connection.
func (c *Conn) sendSome(most int, write func() error) (more bool) {
	err := errSenderExited // unless sendReady returns
	defer func() {
		if p := recover(); p != nil {
			c.srv.Metrics.Panics.Add(1)
			c.srv.Logger.Error("broker: an answer panicked", "panic", p, "stack", string(debug.Stack()))
		}
		if more = errors.Is(err, errMore); !more {
			c.endSending(err)
		}
	}()
	err = c.sendReady(most, write)
	return false // see above
}

var (
	errSenderExited = errors.New("broker: an answer has ended its goroutine")
	errMore         = errors.New("broker: there is more to be sent")
)

// sendReady returns nil when no response is ready; another goroutine may be sending by then. It
// returns errMore after most responses, or if a write would block.
func (c *Conn) sendReady(most int, write func() error) error {
	for n := 0; ; {
		if buffered := len(c.out.buf); buffered == 0 || buffered < flushBytes && n < most {
			r, err := c.nextReady(n < most)
			if err != nil {
				return err
			}
			if r != nil {
				n++
				c.out.size += int64(r.size)
				c.out.buf = appendReply(c.out.buf, r.correlation, r.build())
				c.out.replies = append(c.out.replies, r)
				continue // more may be ready
			}
			if buffered == 0 {
				return nil
			}
		}
		if err := write(); err != nil {
			return err
		}
		c.srv.Metrics.answered(c.out.replies)
		c.release()
	}
}

// endSending ends the sending that beginSendingLocked began. After an error, no goroutine sends any
// more.
func (c *Conn) endSending(err error) {
	if err != nil {
		c.release()
		c.abort()
	}
	c.senders.Done()
}

// abort ends a connection that gets no more responses.
func (c *Conn) abort() {
	c.cancel()
	if !c.srv.Draining.Load() {
		c.hangUp() // also ends the reader
	}
}

// release returns the charges for responses that were sent or never will be.
func (c *Conn) release() {
	c.srv.outbound.Add(-c.out.charged)
	c.srv.queuedSum.Add(-c.out.size)
	c.out.charged, c.out.size = 0, 0
	clear(c.out.replies)
	c.out.replies = c.out.replies[:0]
	if c.out.buf = c.out.buf[:0]; cap(c.out.buf) > 2*flushBytes {
		c.out.buf = nil // a large fetch; do not keep its buffer for an idle client
	}
}

// nextReady removes the head of the queue if it is ready. It returns errMore if the head is ready
// but take is false. If the head is not ready and nothing is buffered, it ends the sending.
func (c *Conn) nextReady(take bool) (r *Reply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.queue[0].build == nil {
		if len(c.out.buf) > 0 {
			return nil, nil
		}
		c.sending = false
		if len(c.queue) == 0 && c.srv.Draining.Load() {
			c.signalReaderLocked() // see waitUntilSent
		}
		return nil, nil
	}
	if !take {
		return nil, errMore
	}
	r = c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	if len(c.queue) == 0 {
		c.queue = nil
		c.idleSince.Store(time.Now().UnixNano())
	}
	c.queuedBytes -= r.size
	if c.readerWaits && c.hasCapacityLocked() {
		c.readerWaits = false
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // ends its read: see waitForCapacity
		c.signalReaderLocked()
	}
	return r, nil
}

func (c *Conn) signalReaderLocked() {
	select {
	case c.queueShrunk <- struct{}{}:
	default: // the reader has not received the last signal yet
	}
}

// waitUntilSent returns when every request is answered, or the client has disconnected. It is
// called when no further request is read.
func (c *Conn) waitUntilSent() {
	for {
		c.mu.Lock()
		done := len(c.queue) == 0 && !c.sending
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.queueShrunk:
		case <-c.ctx.Done():
			return
		}
	}
}

// write writes and may block on the client's network, for at most WriteTimeout.
func (c *Conn) write() error {
	if err := c.srv.Gate.Pass(c.ctx); err != nil {
		return err
	}
	c.answered.Store(true)
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.Limits.WriteTimeout))
	_, err := c.nc.Write(c.out.buf)
	_ = c.nc.SetWriteDeadline(time.Time{}) // otherwise tryWrite would fail from then on
	return err
}

// tryWrite writes as much as the kernel takes at once. It returns errMore if something is left.
func (c *Conn) tryWrite() error {
	if c.raw == nil || !c.srv.Gate.Open() {
		return errMore
	}
	n := 0
	_ = c.raw.Write(func(fd uintptr) bool { // ignores errors: write will find them
		n, _ = writeTo(fd, c.out.buf)
		return true // even if nothing was written: do not wait
	})
	if n > 0 {
		c.answered.Store(true)
	}
	if n < len(c.out.buf) {
		c.out.buf = c.out.buf[max(n, 0):]
		return errMore
	}
	return nil
}

// OutboundCapacity returns how many of want bytes this connection may hold in a response now. When
// slow readers use up the limit, all fetches shrink to one batch instead of waiting for them.
func (c *Conn) OutboundCapacity(want int) int {
	capacity := c.srv.Limits.MaxOutboundSum - c.srv.outbound.Load()
	return int(max(0, min(int64(want), capacity)))
}

// ChargeOutbound charges the actual size of a response.
func (c *Conn) ChargeOutbound(n int) {
	c.out.charged += int64(n)
	c.srv.outbound.Add(int64(n))
}
