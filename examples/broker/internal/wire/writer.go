package wire

import (
	"runtime/debug"
	"time"
)

// flushBytes is how much of the answers that are ready goes out in one write.
const flushBytes = 64 << 10

// writeReplies sends answers in the order of their requests until the client is
// gone, or until the input has ended and everything is sent.
func (c *Conn) writeReplies() {
	defer func() {
		if p := recover(); p != nil {
			c.srv.Metrics.Panics.Add(1)
			c.srv.Logger.Error("broker: writer panicked", "panic", p, "stack", string(debug.Stack()))
		}
		c.giveBackOutbound()
		c.cancel()
		if !c.srv.Draining.Load() {
			c.hangUp() // ends the reader, too
		}
	}()
	var (
		buf  []byte
		sent []*Reply
		size int64 // of the requests that buf answers
	)
	defer func() { c.srv.queuedSum.Add(-size) }()
	for {
		r, finished := c.nextReady()
		if r != nil {
			size += int64(r.size)
			buf = appendReply(buf, r.correlation, r.build())
			sent = append(sent, r)
			if len(buf) < flushBytes {
				continue // more may be ready
			}
		}
		if len(buf) > 0 {
			if c.srv.Gate.Pass(c.ctx) != nil {
				return
			}
			_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.Limits.WriteTimeout))
			c.answered.Store(true)
			_, err := c.nc.Write(buf)
			c.giveBackOutbound()
			c.srv.queuedSum.Add(-size)
			size = 0
			if err != nil {
				return
			}
			c.srv.Metrics.answered(sent)
			clear(sent)
			sent = sent[:0]
			if buf = buf[:0]; cap(buf) > 2*flushBytes {
				buf = nil // a large fetch; do not keep its size for an idle client
			}
			continue
		}
		if finished {
			return
		}
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// nextReady takes the head of the queue if it is ready. finished reports whether
// nothing is queued and nothing will be.
func (c *Conn) nextReady() (r *Reply, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, c.inputClosed
	}
	if r = c.queue[0]; r.build == nil {
		return nil, false
	}
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
		select {
		case c.room <- struct{}{}:
		default:
		}
	}
	return r, false
}

// giveBackOutbound ends what HoldOutbound took.
func (c *Conn) giveBackOutbound() {
	c.srv.outbound.Add(-c.outbound)
	c.outbound = 0
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
	c.outbound += int64(n)
	c.srv.outbound.Add(int64(n))
}
