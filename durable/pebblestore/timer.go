package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/seed-782fa212/limbo/durable/store"
)

// maxInline is the longest body kept in its timer's record. A record is rewritten when its timer
// waits again, is moved or dies; a separate body is written once.
const maxInline = 256

// timer is the value under kindRecord or kindSuccessor. It does not hold whether the timer waits or
// is leased: a claim writes a lease and leaves the record as it is.
type timer struct {
	key       string
	id        store.ID
	topic     string
	due       store.Millis
	attempts  int // before the present lease, if there is one
	lastError string
	died      store.Millis // if dead
	dead      bool
	body      body
}

// body is in the record (inline), or under kindBody by its number. A number is used once in a
// shard.
type body struct {
	length int
	inline []byte
	number uint64 // 0: inline
}

func (t *timer) lane() int { return store.LaneOfKey(t.key, t.topic) }

// record returns the record of a waiting or dead timer, for List.
func (t *timer) record() store.Record {
	r := store.Record{
		Key: t.key, ID: t.id, Topic: t.topic, State: store.Waiting,
		Due: t.due, Attempts: t.attempts, LastError: t.lastError,
	}
	if t.dead {
		r.State, r.Died = store.Dead, t.died
	}
	return r
}

const flagDead = 1

func appendTimer(b []byte, t *timer) []byte {
	var flags byte
	if t.dead {
		flags |= flagDead
	}
	b = append(b, flags)
	b = append(b, t.id[:]...)
	b = binary.AppendUvarint(b, uint64(t.due))
	b = binary.AppendUvarint(b, uint64(t.attempts))
	b = binary.AppendUvarint(b, uint64(t.died))
	b = appendString(b, t.topic)
	b = appendString(b, t.lastError)
	b = binary.AppendUvarint(b, t.body.number)
	b = binary.AppendUvarint(b, uint64(t.body.length))
	return append(b, t.body.inline...)
}

// decodeTimer decodes a record; it does not keep v.
func decodeTimer(key string, v []byte) (*timer, error) {
	r := reader{left: v}
	t := &timer{key: key}
	t.dead = r.byte()&flagDead != 0
	copy(t.id[:], r.take(len(t.id)))
	t.due = store.Millis(r.uvarint())
	t.attempts = int(r.uvarint())
	t.died = store.Millis(r.uvarint())
	t.topic = string(r.take(int(r.uvarint())))
	t.lastError = string(r.take(int(r.uvarint())))
	t.body.number = r.uvarint()
	t.body.length = int(r.uvarint())
	if t.body.number == 0 && t.body.length > 0 {
		t.body.inline = append([]byte(nil), r.take(t.body.length)...)
	}
	if r.bad || len(r.left) > 0 {
		return nil, errRecord
	}
	return t, nil
}

// errRecord is returned for a value that this package has not written.
var errRecord = errors.New("a record is damaged")

// meta is a shard's record: the last number, which must outlast the process, and counts, so that a
// store opens without reading its timers.
type meta struct {
	number  uint64 // the last fence or body number given out
	waiting [lanes]uint64
	fronts  [lanes]store.Millis // no timer of the lane is due earlier
	dead    uint64
	dropped uint64
}

func appendMeta(b []byte, m *meta) []byte {
	b = binary.AppendUvarint(b, m.number)
	for i := range lanes {
		b = binary.AppendUvarint(b, m.waiting[i])
		b = binary.AppendUvarint(b, uint64(m.fronts[i]))
	}
	b = binary.AppendUvarint(b, m.dead)
	return binary.AppendUvarint(b, m.dropped)
}

func decodeMeta(v []byte) (m meta, err error) {
	r := reader{left: v}
	m.number = r.uvarint()
	for i := range lanes {
		m.waiting[i] = r.uvarint()
		m.fronts[i] = store.Millis(r.uvarint())
	}
	m.dead = r.uvarint()
	m.dropped = r.uvarint()
	if r.bad || len(r.left) > 0 {
		return meta{}, errRecord
	}
	return m, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader decodes a value; bad reports whether the value was too short.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.bad, r.left = true, nil
		return nil
	}
	taken := r.left[:n]
	r.left = r.left[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 {
		r.bad, r.left = true, nil
		return 0
	}
	r.left = r.left[n:]
	return v
}
