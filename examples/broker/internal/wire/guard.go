package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// kmsg decodes requests, but trusts their counts more than a broker on an open port can:
//
//   - An array may claim as many elements as bytes are left, and all are allocated before the first
//     is read: a 16 MiB frame allocates more than a gigabyte.
//   - A struct of a flexible version may claim 2^32 tagged fields, and the loop over them does not
//     stop at the end of the bytes: a frame of some thirty bytes spins a core for a minute.
//
// So the guard walks a frame once before kmsg sees it. The walk reads only lengths and counts,
// allocates nothing, and its cost is bounded by the frame's bytes. The layouts in layouts.go say
// only where the counts are; TestLayoutsAgreeWithKmsg encodes every request at every version with
// kmsg and requires the walk to end exactly at the last byte.

var (
	errTruncated = errors.New("broker: request ends inside a field")
	errTrailing  = errors.New("broker: bytes after the request's end")
	errTooMany   = errors.New("broker: too many array elements or tagged fields")
	errBrokerTag = errors.New("broker: tagged field of broker-to-broker requests")
)

// maxTags bounds the tagged fields of a request. Clients send at most one.
const maxTags = 64

// walker is a cursor over a frame's bytes, in memory or read by a stripper. Its first error is
// sticky.
type walker struct {
	src      []byte
	strip    *stripper // nil: the bytes are in src
	version  int16
	flexible bool
	elements int // array elements still allowed
	tags     int // tagged fields still allowed
	err      error
}

// checkLayout walks a request's body. If it returns an error, the body must not be passed to kmsg.
func checkLayout(body []byte, layout []field, version int16, flexible bool, maxElements int) error {
	w := walker{src: body, version: version, flexible: flexible, elements: maxElements, tags: maxTags}
	w.body(layout)
	return w.err
}

// header walks the part of a request's header after the first headerSize bytes: the client id,
// never compact, and tags if the request is flexible.
func (w *walker) header(flexible bool) {
	w.skip(w.length(2))
	w.flexible = flexible
	w.skipTags()
}

// body walks a request's body, which must extend to the end of the frame.
func (w *walker) body(layout []field) {
	w.fields(layout)
	w.skipTags()
	left := len(w.src)
	if w.strip != nil {
		left = w.strip.left
	}
	if w.err == nil && left > 0 {
		w.fail(fmt.Errorf("%w: %d", errTrailing, left))
	}
}

func (w *walker) fields(layout []field) {
	for i := range layout {
		f := &layout[i]
		if w.err != nil {
			return
		}
		if !f.in(w.version) {
			continue
		}
		switch f.kind {
		case fixedField:
			w.skip(f.size)
		case stringField:
			w.skip(w.length(2))
		case bytesField:
			if w.strip != nil {
				w.strip.empty(w)
			} else {
				w.skip(w.length(4))
			}
		case arrayField, plainArray:
			n := w.length(4)
			if n < -1 {
				w.fail(errTruncated)
				return
			}
			if n > w.elements {
				w.fail(errTooMany)
				return
			}
			w.elements -= max(n, 0)
			for range max(n, 0) {
				w.fields(f.of)
				if f.kind == arrayField {
					w.skipTags()
				}
				if w.err != nil {
					return
				}
			}
		}
	}
}

// length reads a count of width bytes, or a compact one. -1 means null.
func (w *walker) length(width int) int {
	if w.flexible {
		return w.uvarint() - 1
	}
	b := w.take(width)
	switch {
	case b == nil:
		return 0
	case width == 2:
		return int(int16(binary.BigEndian.Uint16(b)))
	default:
		return int(int32(binary.BigEndian.Uint32(b)))
	}
}

// uvarint fails for values that do not fit an int32: no count of a request is larger, and int stays
// safe on 32-bit machines.
func (w *walker) uvarint() int {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := w.take(1)
		if b == nil {
			return 0
		}
		if v |= uint64(b[0]&0x7f) << shift; b[0] < 0x80 {
			if v > 1<<31-1 {
				break
			}
			return int(v)
		}
	}
	w.fail(errTruncated)
	return 0
}

// skipTags skips a struct's tagged fields. It refuses tags below 8: they are defined for requests
// between brokers, clients do not send them, and some hold structs with tags of their own, which
// kmsg would decode unchecked.
func (w *walker) skipTags() {
	if !w.flexible || w.err != nil {
		return
	}
	n := w.uvarint()
	if n > w.tags {
		w.fail(errTooMany)
		return
	}
	w.tags -= n
	for range n {
		if w.uvarint() < 8 && w.err == nil {
			w.fail(errBrokerTag)
		}
		w.skip(w.uvarint())
		if w.err != nil {
			return
		}
	}
}

func (w *walker) skip(n int) { w.take(n) }

// take returns the next n bytes, or nil after a failure. They are valid until the next call. A
// length of -1 (null) is empty; a lower one is invalid.
func (w *walker) take(n int) []byte {
	if n == -1 {
		return nil
	}
	if w.strip != nil {
		return w.strip.copy(w, n)
	}
	if w.err != nil || n < 0 || n > len(w.src) {
		w.fail(errTruncated)
		return nil
	}
	b := w.src[:n:n]
	w.src = w.src[n:]
	return b
}

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.src = nil
}
