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

// Peer is a connection from one broker to another: one request at a time.
type Peer struct {
	Conn        net.Conn
	br          *bufio.Reader
	formatter   *kmsg.RequestFormatter
	maxAnswer   int
	correlation int32
	frame       []byte // reused: an answer is valid until the next call
}

// NewPeer takes over nc.
func NewPeer(nc net.Conn, from int32, maxAnswer int) *Peer {
	return &Peer{
		Conn:      nc,
		br:        bufio.NewReaderSize(nc, 64<<10),
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(fmt.Sprintf("broker-%d", from))),
		maxAnswer: maxAnswer,
	}
}

// Call sends a request and reads its answer. After an error the connection is of
// no use. The end of ctx ends the call.
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
	var head [8]byte
	if _, err := io.ReadFull(p.br, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 || size > p.maxAnswer {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != p.correlation {
		return nil, fmt.Errorf("answer to request %d, not %d", got, p.correlation)
	}
	if cap(p.frame) < size || cap(p.frame) > max(4*size, 64<<10) {
		p.frame = make([]byte, size)
	}
	body := p.frame[:size]
	if _, err := io.ReadFull(p.br, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && len(body) > 0 {
		body = body[1:] // the header's tags: none
	}
	return resp, resp.ReadFrom(body)
}
