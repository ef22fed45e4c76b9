package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A request and a reply are frames of the same size:
//
//	id      8 bytes, chosen by the client and repeated in the reply
//	action  1 byte of a request: the server's action
//	delay   4 bytes of a request: milliseconds until its reply
//	payload 8 bytes; the reply has its complement
type frame struct {
	id      uint64
	action  action
	delay   time.Duration
	payload uint64
}

const frameSize = 8 + 1 + 4 + 8

// action is the server's action for a request.
type action byte

const (
	answer      action = iota // reply once
	answerTwice               // reply twice
	ignore                    // no reply
	actions
)

func readFrame(r io.Reader) (f frame, err error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return f, err
	}
	f.id, f.action = binary.BigEndian.Uint64(b[:]), action(b[8])
	f.delay = time.Duration(binary.BigEndian.Uint32(b[9:])) * time.Millisecond
	f.payload = binary.BigEndian.Uint64(b[13:])
	if f.action >= actions {
		return f, fmt.Errorf("action is %d, must be below %d", f.action, actions)
	}
	return f, nil
}

// link is a connection with its own writer goroutine: a sender does not wait for the network, and
// frames that are queued together are written together.
type link struct {
	net.Conn
	wake  chan struct{} // capacity 1: signals that the queue is not empty
	limit int           // bytes that may be queued

	mu     sync.Mutex
	queued []byte // guarded by mu: frames that write has not taken yet
	err    error  // guarded by mu: why the connection was lost, unless its reader noticed
}

const (
	// maxQueued bounds the bytes queued for a peer that reads slowly or not at all: more than all
	// frames of the most calls that the flags allow.
	maxQueued = 32 << 20

	// writeTimeout is how long a peer may take to read writeSize bytes.
	writeTimeout = 10 * time.Second
	writeSize    = 64 << 10
)

func newLink(c net.Conn) *link {
	return &link{Conn: c, wake: make(chan struct{}, 1), limit: maxQueued}
}

// send queues a frame, and never waits for the peer. It returns an error if the frame does not fit
// in the queue, or if the connection is lost.
func (l *link) send(f frame) error {
	var b [frameSize]byte
	binary.BigEndian.PutUint64(b[:], f.id)
	b[8] = byte(f.action)
	binary.BigEndian.PutUint32(b[9:], uint32(f.delay/time.Millisecond))
	binary.BigEndian.PutUint64(b[13:], f.payload)
	l.mu.Lock()
	switch {
	case l.err != nil:
		defer l.mu.Unlock()
		return l.err
	case len(l.queued)+frameSize > l.limit:
		defer l.mu.Unlock()
		return fmt.Errorf("the peer does not read: %d bytes are queued, and at most %d may be", len(l.queued), l.limit)
	}
	l.queued = append(l.queued, b[:]...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// write writes queued frames until ended is closed or the connection is lost. A peer that does not
// read loses its connection. write holds no lock while it writes, so no sender waits for the peer.
func (l *link) write(ended <-chan struct{}) {
	var taken []byte
	for {
		select {
		case <-ended:
			return
		case <-l.wake:
		}
		l.mu.Lock()
		taken, l.queued = l.queued, taken[:0]
		l.mu.Unlock()
		for rest := taken; len(rest) > 0; {
			n := min(len(rest), writeSize)
			err := l.SetWriteDeadline(time.Now().Add(writeTimeout))
			if err == nil {
				_, err = l.Write(rest[:n])
			}
			if err != nil {
				l.lose(err)
				return
			}
			rest = rest[n:]
		}
	}
}

// lose closes the connection with a reason, so that further sends fail and the reader ends.
func (l *link) lose(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err, l.queued = err, nil
	}
	l.mu.Unlock()
	_ = l.Close()
}

// cause returns why the connection was lost. The reader may only have failed because lose closed
// the connection.
func (l *link) cause(read error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return read
}
