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

// A produce request that exceeds the frame limit is answered MESSAGE_TOO_LARGE, which a client can
// report; if the connection were closed instead, librdkafka would suspect the security protocol.
// For that, the reader skips the records and decodes the rest, the names of the partitions, like
// any other request.

// refuseTooLarge reads such a frame and answers it.
func (c *Conn) refuseTooLarge(size int, begun time.Time) error {
	if err := c.readBy(begun.Add(c.srv.Limits.FrameTimeout)); err != nil {
		return err
	}
	s := stripper{r: c.br, left: size, maxOut: c.srv.Limits.MaxSmallFrame}
	frame, err := s.strip(c.srv.Limits.MaxArrays)
	if err != nil {
		return c.readErr(err)
	}
	req, err := decodeRequest(frame, c.srv.Limits.MaxArrays)
	if err != nil {
		return err
	}
	q := req.body.(*kmsg.ProduceRequest)
	if q.Acks == 0 {
		return fmt.Errorf("%w: %d bytes, in a request without an answer", errFrameSize, size)
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

// stripper reads a frame for a walker, and copies it with its bytes fields emptied.
type stripper struct {
	r      *bufio.Reader
	left   int // of the frame
	out    []byte
	maxOut int // limit of out
}

func (s *stripper) strip(elements int) ([]byte, error) {
	w := walker{strip: s, elements: elements, tags: maxTags}
	head := w.take(headerSize)
	if w.err != nil {
		return nil, w.err
	}
	key := int16(binary.BigEndian.Uint16(head))
	w.version = int16(binary.BigEndian.Uint16(head[2:]))
	api := apis[key]
	if w.version < api.min || w.version > api.max {
		return nil, fmt.Errorf("%w: %s %d", errVersion, kmsg.NameForKey(key), w.version)
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(w.version)
	w.header(req.IsFlexible())
	w.body(api.layout)
	return s.out, w.err
}

// copy implements take for a walker that reads from a stripper.
func (s *stripper) copy(w *walker, n int) []byte {
	if w.err == nil && len(s.out)+n > s.maxOut {
		w.fail(errFrameSize)
	}
	if w.err != nil || n < 0 || n > s.left {
		w.fail(errTruncated)
		return nil
	}
	at := len(s.out)
	s.out = append(s.out, make([]byte, n)...)
	if _, err := io.ReadFull(s.r, s.out[at:]); err != nil {
		w.fail(err)
		return nil
	}
	s.left -= n
	return s.out[at:]
}

// empty skips a bytes field, and copies it as an empty one.
func (s *stripper) empty(w *walker) {
	at := len(s.out)
	n := w.length(4)
	if w.err != nil || n < -1 || n > s.left {
		w.fail(errTruncated)
		return
	}
	s.out = append(s.out[:at], 0, 0, 0, 0)
	if w.flexible {
		s.out = append(s.out[:at], 1)
	}
	n = max(n, 0)
	if _, err := s.r.Discard(n); err != nil {
		w.fail(err)
	}
	s.left -= n
}
