package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// W12's control: a server that keeps as many connections and only forwards frames from one to
// another. A client that wakes a poll this way measures the time that two processes need to wake
// one another twice over loopback, which is the minimum for any broker.

// relayFrame is as long as a produce request with a small record, and as a fetch response. A
// frame begins with a poll's number and the frame's type.
const relayFrame = 128

const (
	relayPoll byte = iota
	relayWake
)

func newRelayFrame(kind byte, number int) []byte {
	b := make([]byte, relayFrame)
	binary.BigEndian.PutUint32(b, uint32(number))
	b[4] = kind
	return b
}

// serveRelay runs a relay for at most limit polls.
func serveRelay(ctx context.Context, limit string) error {
	n, err := strconv.Atoi(limit)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Printf("relay: listening on %s\n", l.Addr())
	polls := make([]relayedPoll, n)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			relay(conn, polls)
		}()
	}
}

// relayedPoll is the relay's state of a poll.
type relayedPoll struct {
	mu    sync.Mutex
	conn  net.Conn // parked; nil if it is not
	frame []byte   // frame of a wake-up that came before the poll; nil if there is none
}

func (p *relayedPoll) park(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn = conn; p.frame != nil {
		p.answerLocked()
	}
}

func (p *relayedPoll) wake(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frame = frame; p.conn != nil {
		p.answerLocked()
	}
}

func (p *relayedPoll) answerLocked() {
	_, _ = p.conn.Write(p.frame)
	p.conn, p.frame = nil, nil
}

// relay serves one connection until it ends.
func relay(conn net.Conn, polls []relayedPoll) {
	for {
		b := make([]byte, relayFrame)
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		number := binary.BigEndian.Uint32(b)
		if number >= uint32(len(polls)) {
			return
		}
		if b[4] == relayPoll {
			polls[number].park(conn)
			continue
		}
		polls[number].wake(b)
		if _, err := conn.Write(b); err != nil { // acknowledges the produce, as a broker does
			return
		}
	}
}

// relayPolls is the relay's client.
type relayPolls struct {
	producer net.Conn
	all      []net.Conn
	*responses
}

func parkAtRelay(addr string, n int) (_ *relayPolls, err error) {
	ps := &relayPolls{responses: newResponses(n)}
	defer func() {
		if err != nil {
			ps.close()
		}
	}()
	if ps.producer, err = net.Dial("tcp", addr); err != nil {
		return nil, err
	}
	for i := range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		ps.all = append(ps.all, conn)
		frame := make([]byte, relayFrame)
		ps.read(i, func() ([]byte, error) {
			_, err := io.ReadFull(conn, frame)
			return frame, err
		})
		if _, err := conn.Write(newRelayFrame(relayPoll, i)); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

func (ps *relayPolls) close() {
	if ps.producer != nil {
		_ = ps.producer.Close()
	}
	for _, conn := range ps.all {
		_ = conn.Close()
	}
	ps.readers.Wait()
}

// wake wakes a poll, sends it again, and returns the time until it was answered.
func (ps *relayPolls) wake(i int) (time.Duration, error) {
	frame := newRelayFrame(relayWake, i)
	begun := time.Now()
	if _, err := ps.producer.Write(frame); err != nil {
		return 0, err
	}
	got, err := ps.await(i)
	if err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(ps.producer, frame); err != nil {
		return 0, err
	}
	_, err = ps.all[i].Write(newRelayFrame(relayPoll, i))
	return got.at.Sub(begun), err
}
