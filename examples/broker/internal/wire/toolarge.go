package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A produce request that is longer than a frame may be is answered MESSAGE_TOO_LARGE, as a
// client can tell its user: of a connection that is closed librdkafka suspects the security
// protocol. For that its records are read past, and what is left, the names of its
// partitions, is decoded like any other request.

// refuseTooLarge reads such a frame and answers it.
func (c *Conn) refuseTooLarge(size int, begun time.Time) error {
	if err := c.readBy(begun.Add(c.srv.Limits.FrameTimeout)); err != nil {
		return err
	}
	s := stripper{r: c.br, left: size, most: c.srv.Limits.MaxSmallFrame, elements: c.srv.Limits.MaxArrays, tags: maxTags}
	frame, err := s.strip()
	if err != nil {
		return c.readErr(err)
	}
	req, err := decodeRequest(frame, c.srv.Limits.MaxArrays)
	if err != nil {
		return err
	}
	q := req.body.(*kmsg.ProduceRequest)
	if q.Acks == 0 {
		return fmt.Errorf("%w: %d bytes, of which nobody waits for an answer", errFrameSize, size)
	}
	resp := q.ResponseKind().(*kmsg.ProduceResponse)
	for i := range q.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = q.Topics[i].Topic, q.Topics[i].TopicID
		for j := range q.Topics[i].Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.ErrorCode, sp.BaseOffset = q.Topics[i].Partitions[j].Partition, Code(kerr.MessageTooLarge), -1
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	c.srv.logOnce("too large", fmt.Errorf("a produce request of %d bytes, where %d are allowed, is refused", size, c.srv.Limits.MaxFrame))
	c.srv.Metrics.Requests.Add(1)
	c.srv.queuedSum.Add(int64(len(frame)))
	c.enqueue(req.correlation, len(frame)).Now(resp)
	c.Flush()
	return nil
}

// stripper reads a frame and leaves out what lies in its fields of bytes.
type stripper struct {
	r              *bufio.Reader
	left           int // of the frame
	out            []byte
	most           int // bytes of out
	elements, tags int // that are still allowed
	flexible       bool
	err            error
}

func (s *stripper) strip() ([]byte, error) {
	head := s.copy(headerSize)
	if s.err != nil {
		return nil, s.err
	}
	key, version := int16(binary.BigEndian.Uint16(head)), int16(binary.BigEndian.Uint16(head[2:]))
	api := apis[key]
	if version < api.min || version > api.max {
		return nil, fmt.Errorf("%w: %s %d", errVersion, kmsg.NameForKey(key), version)
	}
	s.copy(s.length(2)) // the client id
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	s.flexible = req.IsFlexible()
	s.copyTags()
	s.fields(api.layout, version)
	s.copyTags()
	if s.err == nil && s.left > 0 {
		s.err = fmt.Errorf("%w: %d", errTrailing, s.left)
	}
	return s.out, s.err
}

func (s *stripper) fields(layout []field, version int16) {
	for i := range layout {
		f := &layout[i]
		if s.err != nil || !f.in(version) {
			continue
		}
		switch f.kind {
		case fixedField:
			s.copy(f.size)
		case stringField:
			s.copy(s.length(2))
		case bytesField:
			at := len(s.out)
			n := s.length(4)
			s.out = append(s.out[:at], map[bool][]byte{true: {1}, false: {0, 0, 0, 0}}[s.flexible]...) // empty
			s.discard(n)
		case arrayField, plainArray:
			n := s.length(4)
			if s.elements -= max(n, 0); s.elements < 0 {
				s.fail(errTooMany)
			}
			for range max(n, 0) {
				if s.err != nil {
					return
				}
				s.fields(f.of, version)
				if f.kind == arrayField {
					s.copyTags()
				}
			}
		}
	}
}

// length copies a count of width bytes, or a compact one. -1 is null.
func (s *stripper) length(width int) int {
	if s.flexible {
		return s.uvarint() - 1
	}
	b := s.copy(width)
	switch {
	case s.err != nil:
		return 0
	case width == 2:
		return int(int16(binary.BigEndian.Uint16(b)))
	default:
		return int(int32(binary.BigEndian.Uint32(b)))
	}
}

func (s *stripper) uvarint() (v int) {
	for shift := 0; shift < 35; shift += 7 {
		b := s.copy(1)
		if s.err != nil {
			return 0
		}
		if v |= int(b[0]&0x7f) << shift; b[0] < 0x80 {
			if v > 1<<31-1 {
				break
			}
			return v
		}
	}
	s.fail(errTruncated)
	return 0
}

func (s *stripper) copyTags() {
	if !s.flexible || s.err != nil {
		return
	}
	n := s.uvarint()
	if s.tags -= n; s.tags < 0 {
		s.fail(errTooMany)
	}
	for range n {
		if s.err != nil {
			return
		}
		s.uvarint()
		s.copy(s.uvarint())
	}
}

// copy copies the next n bytes, and returns them; a null (-1) has none.
func (s *stripper) copy(n int) []byte {
	if n == -1 {
		return nil
	}
	if s.err == nil && len(s.out)+n > s.most {
		s.fail(errFrameSize)
	}
	if s.err != nil || n < 0 || n > s.left {
		s.fail(errTruncated)
		return nil
	}
	at := len(s.out)
	s.out = append(s.out, make([]byte, n)...)
	_, err := io.ReadFull(s.r, s.out[at:])
	if err != nil {
		s.fail(err)
	}
	s.left -= n
	return s.out[at:]
}

func (s *stripper) discard(n int) {
	if n == -1 {
		return
	}
	if s.err != nil || n < 0 || n > s.left {
		s.fail(errTruncated)
		return
	}
	if _, err := s.r.Discard(n); err != nil {
		s.fail(err)
	}
	s.left -= n
}

func (s *stripper) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
