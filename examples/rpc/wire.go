package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A request and a reply are frames of one size:
//
//	id      8 bytes, of the client's choice, and the same in the reply
//	what    1 byte of a request: what the server does with it
//	delay   4 bytes of a request: milliseconds until its reply
//	word    8 bytes; the reply has its complement
type frame struct {
	id    uint64
	what  what
	delay time.Duration
	word  uint64
}

const frameSize = 8 + 1 + 4 + 8

// what the server does with a request.
type what byte

const (
	answer      what = iota // reply once
	answerTwice             // reply, and once more
	ignore                  // no reply
	kinds
)

func readFrame(r io.Reader) (f frame, err error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return f, err
	}
	f.id, f.what = binary.BigEndian.Uint64(b[:]), what(b[8])
	f.delay = time.Duration(binary.BigEndian.Uint32(b[9:])) * time.Millisecond
	f.word = binary.BigEndian.Uint64(b[13:])
	if f.what >= kinds {
		return f, fmt.Errorf("what is %d, must be below %d", f.what, kinds)
	}
	return f, nil
}

// link is a connection with a writer of its own: who sends a frame does not wait for the
// network, and frames that come together go out together.
type link struct {
	net.Conn
	wake chan struct{} // capacity 1: there is something to flush

	mu  sync.Mutex
	out *bufio.Writer // guarded by mu
}

func newLink(c net.Conn) *link {
	return &link{Conn: c, wake: make(chan struct{}, 1), out: bufio.NewWriterSize(c, 1<<16)}
}

func (l *link) send(f frame) error {
	var b [frameSize]byte
	binary.BigEndian.PutUint64(b[:], f.id)
	b[8] = byte(f.what)
	binary.BigEndian.PutUint32(b[9:], uint32(f.delay/time.Millisecond))
	binary.BigEndian.PutUint64(b[13:], f.word)
	l.mu.Lock()
	_, err := l.out.Write(b[:])
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return err
}

// write flushes what is sent, until the connection is closed or ended.
func (l *link) write(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-l.wake:
		}
		l.mu.Lock()
		err := l.out.Flush()
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}
