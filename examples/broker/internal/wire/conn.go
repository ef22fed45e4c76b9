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

// smallFrame is what a connection keeps a buffer for. Larger frames are
// allocated for themselves and charged to the inbound budget of the server.
const smallFrame = 64 << 10

// Conn is one client. One goroutine serves it, however many fetches it has parked: its
// reader. Answers are sent by who has them (see send).
type Conn struct {
	srv    *Server
	nc     net.Conn
	ctx    context.Context // done when the client is gone; frees what it parked
	cancel context.CancelFunc
	br     *bufio.Reader
	frame  []byte // reused for small frames; only the reader uses it

	host      string
	idleSince atomic.Int64 // in ns of the wall clock: its beginning, or when its last request was answered; busy: one waits

	raw      syscall.RawConn // of nc; nil: it has none
	room     chan struct{}   // capacity 1: the reader waited, and the queue has shrunk
	answered atomic.Bool     // something was written
	out      outgoing        // only who sends uses it
	senders  sync.WaitGroup

	// mu guards the queue. It is a leaf: nothing else is locked under it.
	mu          sync.Mutex
	queue       []*Reply // requests read and not yet written, in order
	queuedBytes int      // of their frames
	readerWaits bool     // the reader waits for the queue to shrink
	handling    *Reply   // of the request that is being handled: the reader sends it, if it is ready by then
	sending     bool     // somebody sends
	ended       bool     // nobody will send any more
}

func newConn(srv *Server, nc net.Conn) *Conn {
	c := &Conn{
		srv:  srv,
		nc:   nc,
		host: hostOf(nc),
		br:   bufio.NewReaderSize(nc, 16<<10),
		room: make(chan struct{}, 1),
	}
	if socket, ok := nc.(syscall.Conn); ok {
		c.raw, _ = socket.SyscallConn() // it has failed only if nc is closed
	}
	c.idleSince.Store(time.Now().UnixNano())
	c.ctx, c.cancel = context.WithCancel(srv.ctx)
	return c
}

// busy is the idleSince of a connection of which a request waits for its answer.
const busy = 0

// serve runs the connection until the client leaves, breaks the protocol, or
// the server drains.
func (c *Conn) serve() {
	defer c.srv.end(c)
	if err := c.readRequests(); errors.Is(err, errDraining) {
		// What is parked is being answered as closed. Let it out.
		c.waitUntilSent()
		if !c.resets() {
			c.lingeringClose()
		}
	} else {
		c.srv.logEnd(err)
	}
	c.cancel() // frees what is parked
	c.hangUp() // ends a write
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.senders.Wait()
	c.srv.queuedSum.Add(-int64(c.queuedBytes)) // what will not be answered any more
}

// errDraining ends a reader whose server shuts down.
var errDraining = errors.New("broker: draining")

// readRequests returns why it ended, never nil. A panic in a handler ends this
// connection alone; it is counted and logged with its stack, for it is a bug.
func (c *Conn) readRequests() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.Metrics.Panics.Add(1)
			c.srv.Logger.Error("broker: handler panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("broker: handler panicked: %v", p)
		}
	}()
	for {
		if err := c.waitForRoom(); err != nil {
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

// waitForRoom returns once the connection may have another request in flight.
//
// The reader must notice a client that hangs up even now, or 64 fetches parked
// for an hour would outlive it. So it does not wait on a channel: it goes on
// reading ahead into the buffer, and who sends ends that read by moving the
// deadline into the past. Both change readerWaits and the deadline under mu, so
// that this cannot fall between the reader's check and its read.
// (A client that pipelines more than the buffer holds beyond its limit is
// noticed when its next answer is written.)
func (c *Conn) waitForRoom() error {
	for {
		c.mu.Lock()
		c.readerWaits = !c.hasRoomLocked()
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
			// Nothing more can be read ahead.
			select {
			case <-c.room:
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

func (c *Conn) hasRoomLocked() bool {
	n := len(c.queue)
	return n == 0 || n < c.srv.Limits.MaxInFlight && c.queuedBytes < c.srv.Limits.MaxQueuedBytes
}

// waitForFrame blocks until a frame has begun. A connection that waits for an
// answer may be silent for as long as that takes; an idle one may not.
func (c *Conn) waitForFrame() error {
	for c.br.Buffered() == 0 {
		if err := c.readBy(time.Now().Add(c.srv.Limits.IdleTimeout)); err != nil {
			return err
		}
		_, err := c.br.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if c.srv.Draining.Load() {
				return errDraining
			}
			c.mu.Lock()
			pending := len(c.queue)
			c.mu.Unlock()
			if pending > 0 {
				continue
			}
			return errIdle
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

// readRequest reads one frame and handles it. From its first byte a frame has
// FrameTimeout to arrive, however slowly its bytes trickle in.
func (c *Conn) readRequest() error {
	begun := time.Now()
	if c.br.Buffered() < 4+headerSize {
		if err := c.readBy(begun.Add(c.srv.Limits.FrameTimeout)); err != nil {
			return err
		}
	}
	head, err := c.br.Peek(4 + headerSize)
	if err != nil {
		// A frame that says it is shorter than a header never grows one.
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
		// Before the bytes are allocated, and only for as long as the frame
		// itself may take.
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

// readBy sets the deadline of the next read. server.Shutdown raises draining and
// then moves every deadline into the past; whichever of the two sets comes last,
// the reader learns of it here or from its read.
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

// handleFrame decodes a frame and handles it. Handlers run one after the other
// on the reader, so a connection's requests take effect in the order they came.
func (c *Conn) handleFrame(frame []byte) error {
	req, err := decodeRequest(frame, c.srv.Limits.MaxArrays)
	if err != nil {
		return err
	}
	var r *Reply
	if size, answered := queuedSize(req.body, len(frame)); answered {
		if !c.srv.holdQueued(int64(size)) {
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

// errOverload sheds the connection whose request would be one too many. Only a
// flood gets there: thousands of long polls are well below.
var errOverload = errors.New("broker: too many bytes of requests wait for their answers")

// queuedSize is how much a request counts while it waits for its answer, and
// whether it gets one. What it holds meanwhile, decoded, and with its answer, is
// some thirty times that at worst. Of a produce request only the partitions are
// held: its records are in the log by then.
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

// holdQueued counts a request in that waits for its answer, if there is room.
func (s *Server) holdQueued(size int64) bool {
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

// enqueue takes the next place in the order of answers, for the request to be handled now;
// Flush is to be called after that. Its size is counted in queuedSum already.
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

// resets reports whether the connection ends with a reset: when the broker is killed,
// and when it goes and never answered this client. An orderly end, as the first
// that a client hears, would tell it that it is not wanted here (kgo takes it for
// missing authentication, and fails records for that), where it has only to look
// for another broker.
func (c *Conn) resets() bool {
	return c.srv.killed.Load() || c.srv.Draining.Load() && !c.answered.Load()
}

// hangUp closes the connection.
func (c *Conn) hangUp() {
	if tcp, ok := c.nc.(interface{ SetLinger(seconds int) error }); ok && c.resets() {
		_ = tcp.SetLinger(0)
	}
	_ = c.nc.Close()
}

// lingeringClose gives a client the chance to read its last answers: to close
// with unread bytes in the receive buffer resets the connection and takes with
// it what the client has not read yet.
func (c *Conn) lingeringClose() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.Limits.LingerClose))
	_, _ = io.Copy(io.Discard, c.nc)
}

// The following are for handlers.

// Context is done when the client is gone.
func (c *Conn) Context() context.Context { return c.ctx }

// RemoteAddr is where the client is, as host:port.
func (c *Conn) RemoteAddr() string { return c.nc.RemoteAddr().String() }

// LocalHost is the host that the client has reached the broker by, "" if unknown.
func (c *Conn) LocalHost() string {
	host, _, _ := net.SplitHostPort(c.nc.LocalAddr().String())
	return host
}

// Close ends the connection: the client has asked for what cannot be answered.
func (c *Conn) Close() { _ = c.nc.Close() }
