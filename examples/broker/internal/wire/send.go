package wire

import (
	"errors"
	"math"
	"runtime/debug"
	"time"
)

// flushBytes is how much of the answers that are ready goes out in one write.
const flushBytes = 64 << 10

// sendHere is for how long after an event whoever completes requests for it sends their
// answers, too, one for each connection. What is completed later is sent by goroutines of
// their own: a producer is not held up by all who have waited for its record.
const sendHere = 100 * time.Microsecond

// outgoing is what is on its way to a client. Only the one who sends uses it.
type outgoing struct {
	buf     []byte
	replies []*Reply // that buf answers
	size    int64    // of their requests: see queuedSize
	held    int64    // of the server's outbound bytes
}

// beginSendingLocked makes the caller the one who sends: it must call send. It returns
// false if nothing is ready, and if another one sends, which will find what is.
func (c *Conn) beginSendingLocked() bool {
	if c.sending || c.ended || len(c.queue) == 0 || c.queue[0].build == nil {
		return false
	}
	c.sending = true
	c.senders.Add(1)
	return true
}

// Flush sends the answer to the request that is being handled, if there is one by now. It is
// called when the handler has returned; a handler that answers and has more to do then calls
// it itself.
func (c *Conn) Flush() {
	c.mu.Lock()
	c.handling = nil
	sends := c.beginSendingLocked()
	c.mu.Unlock()
	if sends {
		c.send(true)
	}
}

// send sends answers, in the order of their requests, until none is ready: here the first of
// them, as far as the kernel takes it at once, and the rest on a goroutine. So the caller is
// not held up by the client, who decides when it reads, and what else it asks.
func (c *Conn) send(here bool) {
	if !here || c.sendSome(1, c.tryWrite) {
		go c.sendSome(math.MaxInt, c.write)
	}
}

// sendSome sends up to so many answers. It reports whether another one is to go on. A panic
// is a bug, and ends the connection alone.
func (c *Conn) sendSome(most int, write func() error) (more bool) {
	err := errSenderGone // unless sendReady returns
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
	errSenderGone = errors.New("broker: an answer has ended its goroutine")
	errMore       = errors.New("broker: there is more to be sent")
)

// sendReady returns nil when nothing is ready any more; another one may have begun to send
// by then. It returns errMore after so many, and if a write would wait.
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
		c.settle()
	}
}

// endSending ends what beginSendingLocked has begun. If sending has failed, nobody will send
// any more.
func (c *Conn) endSending(err error) {
	if err != nil {
		c.settle()
		c.leave()
	}
	c.senders.Done()
}

// leave ends a connection whose client is not answered any more.
func (c *Conn) leave() {
	c.cancel()
	if !c.srv.Draining.Load() {
		c.hangUp() // ends the reader, too
	}
}

// settle gives back what was held for answers that are out, or will never be.
func (c *Conn) settle() {
	c.srv.outbound.Add(-c.out.held)
	c.srv.queuedSum.Add(-c.out.size)
	c.out.held, c.out.size = 0, 0
	clear(c.out.replies)
	c.out.replies = c.out.replies[:0]
	if c.out.buf = c.out.buf[:0]; cap(c.out.buf) > 2*flushBytes {
		c.out.buf = nil // a large fetch; do not keep its size for an idle client
	}
}

// nextReady takes the head of the queue if it is ready, or returns errMore if it is not to be
// taken. If it is not ready, and there is nothing to be written either, this one has ended
// sending.
func (c *Conn) nextReady(take bool) (r *Reply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.queue[0].build == nil {
		if len(c.out.buf) > 0 {
			return nil, nil
		}
		c.sending = false
		if len(c.queue) == 0 && c.srv.Draining.Load() {
			c.tellReaderLocked() // see waitUntilSent
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
	if c.readerWaits && c.hasRoomLocked() {
		c.readerWaits = false
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // ends its read: see waitForRoom
		c.tellReaderLocked()
	}
	return r, nil
}

func (c *Conn) tellReaderLocked() {
	select {
	case c.room <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

// waitUntilSent returns when all that was asked is answered, or the client is gone. No
// further request comes.
func (c *Conn) waitUntilSent() {
	for {
		c.mu.Lock()
		done := len(c.queue) == 0 && !c.sending
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return
		}
	}
}

// write writes, and waits for the client's network, at most as long as WriteTimeout.
func (c *Conn) write() error {
	if err := c.srv.Gate.Pass(c.ctx); err != nil {
		return err
	}
	c.answered.Store(true)
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.Limits.WriteTimeout))
	_, err := c.nc.Write(c.out.buf)
	_ = c.nc.SetWriteDeadline(time.Time{}) // or tryWrite would fail from then on
	return err
}

// tryWrite writes what the kernel takes at once. It returns errMore if something is left.
func (c *Conn) tryWrite() error {
	if c.raw == nil || !c.srv.Gate.Open() {
		return errMore
	}
	n := 0
	_ = c.raw.Write(func(fd uintptr) bool { // an error is found by write
		n, _ = writeTo(fd, c.out.buf)
		return true // also if nothing was taken: it is not to wait
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

// OutboundRoom returns how many of want bytes this connection may hold in an
// answer now. When slow readers hold all there is, everybody's fetches shrink
// (to one batch) instead of waiting for them.
func (c *Conn) OutboundRoom(want int) int {
	room := c.srv.Limits.MaxOutboundSum - c.srv.outbound.Load()
	return int(max(0, min(int64(want), room)))
}

// HoldOutbound charges the bytes an answer really has.
func (c *Conn) HoldOutbound(n int) {
	c.out.held += int64(n)
	c.srv.outbound.Add(int64(n))
}
