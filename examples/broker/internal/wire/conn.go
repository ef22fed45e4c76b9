package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// smallFrame is the size of a connection's frame buffer. Larger frames are allocated individually
// and charged to the server's inbound budget.
const smallFrame = 64 << 10

// Conn is a client's connection. A single goroutine, its reader, serves it, however many fetches
// are parked. The goroutine that completes a request sends the response (see send).
type Conn struct {
	srv    *Server
	nc     net.Conn
	ctx    context.Context // done when the client disconnects; cancels its parked requests
	cancel context.CancelFunc
	br     *bufio.Reader
	frame  []byte // reused for small frames; only the reader uses it

	host      string
	idleSince atomic.Int64 // wall clock in ns: start, or last response; or busy: a request waits

	raw         syscall.RawConn // of nc; nil if it has none
	queueShrunk chan struct{}   // capacity 1: signals a waiting reader that the queue has shrunk
	answered    atomic.Bool     // whether any byte was written
	out         outgoing        // owned by the goroutine that sends
	senders     sync.WaitGroup

	// mu guards the queue. It is a leaf: nothing else is locked under it.
	mu          sync.Mutex
	queue       []*Reply // requests read and not yet answered, in order
	queuedBytes int      // of their frames
	readerWaits bool     // the reader waits for the queue to shrink
	handling    *Reply   // of the request being handled: the reader sends it if it is ready by then
	sending     bool     // a goroutine is sending
	ended       bool     // no goroutine will send any more
}

func newConn(srv *Server, nc net.Conn) *Conn {
	c := &Conn{
		srv:         srv,
		nc:          nc,
		host:        hostOf(nc),
		br:          bufio.NewReaderSize(nc, 16<<10),
		queueShrunk: make(chan struct{}, 1),
	}
	if socket, ok := nc.(syscall.Conn); ok {
		c.raw, _ = socket.SyscallConn() // fails only if nc is closed
	}
	c.idleSince.Store(time.Now().UnixNano())
	c.ctx, c.cancel = context.WithCancel(srv.ctx)
	return c
}

// busy is the idleSince of a connection with a request that waits for its response.
const busy = 0

// serve runs the connection until the client disconnects or breaks the protocol, or the server
// drains.
func (c *Conn) serve() {
	defer c.srv.end(c)
	if err := c.readRequests(); errors.Is(err, errDraining) {
		// Parked requests are being answered as closed; let the responses out.
		c.waitUntilSent()
		if !c.resets() {
			c.lingeringClose()
		}
	} else {
		c.srv.logEnd(err)
	}
	c.cancel() // cancels parked requests
	c.hangUp() // ends a write
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.senders.Wait()
	c.srv.queuedSum.Add(-int64(c.queuedBytes)) // requests that will not be answered any more
}

// errDraining ends a reader whose server shuts down.
var errDraining = errors.New("broker: draining")

// readRequests returns the reason why it ended, never nil. A panic in a handler ends only this
// connection; it is counted and logged with its stack, because it is a bug.
func (c *Conn) readRequests() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.Metrics.Panics.Add(1)
			c.srv.Logger.Error("broker: handler panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("broker: handler panicked: %v", p)
		}
	}()
	for {
		if err := c.waitForCapacity(); err != nil {
			return err
		}
		if err := c.waitForFrame(); err != nil {
			return err
		}
		if err := c.srv.Gate.Pass(c.ctx); err != nil {
			return err
		}
		if err := c.readRequest(); err != nil {
			return err
		}
	}
}

// waitForCapacity returns once the connection may have another request in flight.
//
// The reader must notice a disconnect even now; otherwise 64 fetches, parked for an hour, would
// outlive the client. So it does not wait on a channel: it keeps reading ahead into the buffer, and
// the sender interrupts that read by setting the deadline to the past. Both change readerWaits and
// the deadline under mu, so the change cannot fall between the reader's check and its read. (If a
// client pipelines more than the buffer holds beyond its limit, its disconnect is noticed when its
// next response is written.)
func (c *Conn) waitForCapacity() error {
	for {
		c.mu.Lock()
		c.readerWaits = !c.hasCapacityLocked()
		if !c.readerWaits {
			c.mu.Unlock()
			return nil
		}
		_ = c.nc.SetReadDeadline(time.Time{})
		c.mu.Unlock()
		if c.srv.Draining.Load() {
			return errDraining
		}
		if c.br.Buffered() == c.br.Size() {
			// The buffer is full.
			select {
			case <-c.queueShrunk:
			case <-c.srv.drained:
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
			continue
		}
		_, err := c.br.Peek(c.br.Buffered() + 1)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

func (c *Conn) hasCapacityLocked() bool {
	n := len(c.queue)
	return n == 0 || n < c.srv.Limits.MaxInFlight && c.queuedBytes < c.srv.Limits.MaxQueuedBytes
}

// waitForFrame blocks until a frame begins. A connection with a pending response may be silent
// until it comes; any other only for IdleTimeout since its last request or response.
func (c *Conn) waitForFrame() error {
	deadline := time.Now().Add(c.srv.Limits.IdleTimeout)
	for c.br.Buffered() == 0 {
		if err := c.readBy(deadline); err != nil {
			return err
		}
		_, err := c.br.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if c.srv.Draining.Load() {
				return errDraining
			}
			now := time.Now()
			since := now
			if ns := c.idleSince.Load(); ns != busy {
				since = time.Unix(0, ns)
			}
			if deadline = since.Add(c.srv.Limits.IdleTimeout); !deadline.After(now) {
				return errIdle
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	errIdle      = errors.New("broker: connection idle for too long")
	errFrameSize = errors.New("broker: frame length out of bounds")
)

// readRequest reads one frame and handles it. The whole frame must arrive within FrameTimeout of
// its first byte, even if it trickles in.
func (c *Conn) readRequest() error {
	begun := time.Now()
	if c.br.Buffered() < 4+headerSize {
		if err := c.readBy(begun.Add(c.srv.Limits.FrameTimeout)); err != nil {
			return err
		}
	}
	head, err := c.br.Peek(4 + headerSize)
	if err != nil {
		// A frame whose length is less than a header's never becomes complete.
		if len(head) >= 4 && !c.frameLengthFits(head) {
			return errFrameSize
		}
		return c.readErr(err)
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	key := int16(binary.BigEndian.Uint16(head[4:]))
	if limit := c.srv.Limits.frameLimit(key); size > limit && key == int16(kmsg.Produce) && size <= c.srv.Limits.MaxDiscard {
		_, _ = c.br.Discard(4)
		return c.refuseTooLarge(size, begun)
	} else if size < headerSize || size > limit {
		return fmt.Errorf("%w: %d bytes for api key %d", errFrameSize, size, key)
	}
	_, _ = c.br.Discard(4)

	var frame []byte
	if size <= smallFrame {
		if cap(c.frame) < size {
			c.frame = make([]byte, max(size, 1<<10))
		}
		frame = c.frame[:size]
	} else {
		// Before the bytes are allocated, and within the time limit of the frame.
		ctx, cancel := context.WithDeadline(c.ctx, begun.Add(c.srv.Limits.FrameTimeout))
		err := c.srv.inbound.Acquire(ctx, int64(size))
		cancel()
		if err != nil {
			return fmt.Errorf("broker: no room for a frame of %d bytes: %w", size, err)
		}
		c.srv.inboundBy.Add(int64(size))
		defer func() {
			c.srv.inboundBy.Add(-int64(size))
			c.srv.inbound.Release(int64(size))
		}()
		frame = make([]byte, size)
	}
	if c.br.Buffered() < size {
		if err := c.readBy(begun.Add(c.srv.Limits.FrameTimeout)); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(c.br, frame); err != nil {
		return c.readErr(err)
	}
	return c.handleFrame(frame)
}

func (c *Conn) frameLengthFits(head []byte) bool {
	return int32(binary.BigEndian.Uint32(head)) >= headerSize
}

// readBy sets the deadline of the next read. server.Shutdown sets Draining and then moves every
// deadline to the past. In either order the reader learns of it, here or from its read.
func (c *Conn) readBy(t time.Time) error {
	_ = c.nc.SetReadDeadline(t)
	if c.srv.Draining.Load() {
		return errDraining
	}
	return nil
}

// readErr distinguishes a shutdown's deadline from a slow client's.
func (c *Conn) readErr(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.srv.Draining.Load() {
		return errDraining
	}
	return err
}

// handleFrame decodes a frame and handles it. Handlers run one after the other on the reader, so a
// connection's requests take effect in order.
func (c *Conn) handleFrame(frame []byte) error {
	req, err := decodeRequest(frame, c.srv.Limits.MaxArrays)
	if err != nil {
		return err
	}
	var r *Reply
	if size, answered := queuedSize(req.body, len(frame)); answered {
		if !c.srv.chargeQueued(int64(size)) {
			return errOverload
		}
		r = c.enqueue(req.correlation, size)
	}
	c.srv.Metrics.Requests.Add(1)
	if req.versionUnknown {
		r.Now(unsupportedAPIVersions())
	} else {
		c.srv.Handle(c, req.body, r)
	}
	if r != nil {
		c.Flush()
	}
	return nil
}

// errOverload closes the connection whose request would exceed the limit. Only a flood reaches it:
// thousands of long polls stay well below.
var errOverload = errors.New("broker: too many bytes of requests wait for their answers")

// queuedSize returns the size that is charged for a request while it waits for its response, and
// whether it gets one. Its actual memory, decoded and with its response, is at most about thirty
// times that. A produce request is charged only for its partitions: its records are in the log by
// then.
func queuedSize(req kmsg.Request, frame int) (size int, answered bool) {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return frame, true
	}
	for i := range p.Topics {
		size += 16 * (1 + len(p.Topics[i].Partitions))
	}
	return min(frame, size), p.Acks != 0
}

// chargeQueued charges a request that waits for its response, if the limit allows it.
func (s *Server) chargeQueued(size int64) bool {
	for {
		sum := s.queuedSum.Load()
		if sum+size > s.Limits.MaxQueuedSum {
			return false
		}
		if s.queuedSum.CompareAndSwap(sum, sum+size) {
			return true
		}
	}
}

// enqueue appends the request to be handled to the queue of responses. The caller calls Flush after
// handling it. Its size is already charged to queuedSum.
func (c *Conn) enqueue(correlation int32, size int) *Reply {
	r := &Reply{conn: c, correlation: correlation, size: size}
	c.mu.Lock()
	c.idleSince.Store(busy)
	c.queue = append(c.queue, r)
	c.queuedBytes += size
	c.handling = r
	c.mu.Unlock()
	return r
}

// resets reports whether the connection ends with a reset: when the broker is killed, and when it
// shuts down without ever having answered this client. If an orderly close is the first thing that
// a client sees, it concludes that it is not welcome (kgo takes it for missing authentication, and
// fails records), although it only needs to try another broker.
func (c *Conn) resets() bool {
	return c.srv.killed.Load() || c.srv.Draining.Load() && !c.answered.Load()
}

// hangUp closes the connection, with a reset if resets reports true.
func (c *Conn) hangUp() {
	if tcp, ok := c.nc.(interface{ SetLinger(seconds int) error }); ok && c.resets() {
		_ = tcp.SetLinger(0)
	}
	_ = c.nc.Close()
}

// lingeringClose lets the client read its last responses. Closing a socket with unread input sends
// a reset, which discards responses that the client has not read.
func (c *Conn) lingeringClose() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.Limits.LingerClose))
	_, _ = io.Copy(io.Discard, c.nc)
}

// The following methods are for handlers.

// Context returns a context that is done when the client disconnects.
func (c *Conn) Context() context.Context { return c.ctx }

// RemoteAddr returns the client's address as host:port.
func (c *Conn) RemoteAddr() string { return c.nc.RemoteAddr().String() }

// LocalHost returns the host by which the client reached the broker, "" if unknown.
func (c *Conn) LocalHost() string {
	host, _, _ := net.SplitHostPort(c.nc.LocalAddr().String())
	return host
}

// Close closes the connection, because a request cannot be answered.
func (c *Conn) Close() { _ = c.nc.Close() }
