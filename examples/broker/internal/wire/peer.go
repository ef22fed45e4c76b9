package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Peer is a connection from one broker to another, with at most one request in flight.
type Peer struct {
	Conn        net.Conn
	br          *bufio.Reader
	formatter   *kmsg.RequestFormatter
	maxAnswer   int
	correlation int32
	frame       []byte // reused: a response is valid until the next call
}

// NewPeer takes ownership of nc.
func NewPeer(nc net.Conn, from int32, maxAnswer int) *Peer {
	return &Peer{
		Conn:      nc,
		br:        bufio.NewReaderSize(nc, 64<<10),
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(fmt.Sprintf("broker-%d", from))),
		maxAnswer: maxAnswer,
	}
}

// Call sends a request and reads its response. It fails when ctx ends. After an error the
// connection is unusable.
func (p *Peer) Call(ctx context.Context, req kmsg.Request, timeout time.Duration) (kmsg.Response, error) {
	if err := p.Conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p.correlation++
	if _, err := p.Conn.Write(p.formatter.AppendRequest(p.frame[:0], req, p.correlation)); err != nil {
		return nil, err
	}
	frame, err := ReadFrame(p.br, p.frame, p.maxAnswer)
	if err != nil {
		return nil, err
	}
	p.frame = frame
	if got := int32(binary.BigEndian.Uint32(frame)); got != p.correlation {
		return nil, fmt.Errorf("answer to request %d, not %d", got, p.correlation)
	}
	body := frame[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && len(body) > 0 {
		body = body[1:] // the header's tags: none
	}
	return resp, resp.ReadFrom(body)
}

// ReadFrame reads a response, starting with its correlation id. It reuses buf unless buf is too
// small, or far too large for this frame.
func ReadFrame(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 4 || size-4 > limit {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	_, _ = r.Discard(4) // the four bytes read above
	if cap(buf) < size || cap(buf) > max(4*size, 64<<10) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err = io.ReadFull(r, buf)
	return buf, err
}
