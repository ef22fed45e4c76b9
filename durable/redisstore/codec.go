package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// inline is the longest body kept in the head. Longer bodies have a separate field, so that scripts
// read heads quickly.
const inline = 2 << 10

const (
	headFixed = 2 + 16
	runFixed  = 8 + 8 + 16 + 4 + 1
	apart     = 16 // flag in a head's first byte: the body has a separate field
)

// newHead encodes an entry in the format of common.lua, and returns the body if it has a separate
// field.
func newHead(e *store.Entry) (head, body []byte) {
	head = make([]byte, headFixed, headFixed+len(e.Topic)+min(len(e.Body), inline))
	head[0] = byte(store.LaneOfKey(e.Key, e.Topic))
	head[1] = byte(len(e.Topic))
	copy(head[2:], e.ID[:])
	head = append(head, e.Topic...)
	if len(e.Body) <= inline {
		return append(head, e.Body...), nil
	}
	head[0] |= apart
	head = binary.LittleEndian.AppendUint32(head, uint32(len(e.Body)))
	reference := store.NewID()
	return append(head, reference[:]...), e.Body
}

// head is a decoded head. The body follows the topic, unless apart.
type head struct {
	id    store.ID
	topic string
	body  []byte
}

func decodeHead(s, body string) (h head, err error) {
	if len(s) < headFixed || len(s) < headFixed+int(s[1]) {
		return h, fmt.Errorf("redisstore: a head has %d bytes", len(s))
	}
	copy(h.id[:], s[2:])
	end := headFixed + int(s[1])
	h.topic = s[headFixed:end]
	if s[0]&apart == 0 {
		body = s[end:]
	}
	h.body = []byte(body)
	return h, nil
}

// run is a decoded run.
type run struct {
	due       store.Millis
	fence     uint64
	token     store.Token
	attempts  int
	cancelled bool
	err       string
}

func decodeRun(s string) (r run, err error) {
	if s == "" {
		return r, nil
	}
	if len(s) < runFixed {
		return r, fmt.Errorf("redisstore: a run has %d bytes", len(s))
	}
	b := []byte(s[:runFixed])
	r.due = store.Millis(binary.LittleEndian.Uint64(b))
	r.fence = binary.LittleEndian.Uint64(b[8:])
	copy(r.token[:], b[16:])
	r.attempts = int(binary.LittleEndian.Uint32(b[32:]))
	r.cancelled = b[36]&1 != 0
	r.err = s[runFixed:]
	return r, nil
}

// holderOf encodes the fence and the token of a holder.
func holderOf(h store.Holder) []byte {
	return append(binary.LittleEndian.AppendUint64(make([]byte, 0, 24), h.Fence), h.Token[:]...)
}

// when encodes a due time: "=" and milliseconds, or "+" and milliseconds from now.
func when(buf []byte, at store.Millis, after time.Duration) []byte {
	if at != 0 {
		return strconv.AppendInt(append(buf, '='), int64(at), 10)
	}
	return strconv.AppendInt(append(buf, '+'), int64(store.MillisOf(after)), 10)
}

// whenEntry is when with an additional digit: whether the key must be absent.
func whenEntry(e *store.Entry) []byte {
	w := when(make([]byte, 0, 16), e.At, e.After)
	absent := byte('0')
	if e.IfAbsent {
		absent = '1'
	}
	return append(w[:1], append([]byte{absent}, w[1:]...)...)
}

var errReply = errors.New("redisstore: the server's reply is not that of the script")

// reply is a list that a script returned. It remembers if a field was missing or of another type,
// so that callers need to check err only once.
type reply struct {
	fields []any
	bad    bool
}

func replyOf(v any) *reply {
	fields, ok := v.([]any)
	return &reply{fields, !ok}
}

func (r *reply) number(i int) int64 {
	if i < len(r.fields) {
		if n, ok := r.fields[i].(int64); ok {
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *reply) millis(i int) store.Millis { return store.Millis(r.number(i)) }

func (r *reply) text(i int) string {
	if i < len(r.fields) {
		if s, ok := r.fields[i].(string); ok {
			return s
		}
	}
	r.bad = true
	return ""
}

func (r *reply) list(i int) *reply {
	if i < len(r.fields) {
		if l, ok := r.fields[i].([]any); ok {
			return &reply{fields: l}
		}
	}
	r.bad = true
	return &reply{}
}

// sized returns a text of n bytes.
func (r *reply) sized(i, n int) string {
	s := r.text(i)
	if len(s) != n {
		r.bad = true
		return string(make([]byte, n))
	}
	return s
}

// horizon reads three numbers.
func (r *reply) horizon(i int) store.Horizon {
	return store.Horizon{Now: r.millis(i), NextDue: r.millis(i + 1), NextLeaseEnd: r.millis(i + 2)}
}

func (r *reply) err() error {
	if r.bad {
		return errReply
	}
	return nil
}
