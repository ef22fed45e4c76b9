package main

import (
	"bufio"
	"context"
	"net"
	"sync"

	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// server replies to each request after its delay. Pending replies are timers on a wheel, so replies
// come in another order than their requests.
type server struct {
	listener net.Listener
	replies  *timingwheel.Wheel[reply]
	running  sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{} // guarded by mu
	closed bool               // guarded by mu
}

// reply is a pending reply.
type reply struct {
	to *link
	frame
}

func listen(on network.Network) (*server, error) {
	l, err := on.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{listener: l, links: map[*link]struct{}{}}
	if s.replies, err = timingwheel.New(s.reply, timingwheel.Options{Name: "rpc server"}); err != nil {
		return nil, err
	}
	s.running.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		l := newLink(c)
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.links[l] = struct{}{}
		}
		s.mu.Unlock()
		if closed {
			_ = c.Close()
			return
		}
		s.running.Go(func() { s.serve(l) })
	}
}

func (s *server) serve(l *link) {
	ended := make(chan struct{})
	s.running.Go(func() { l.write(ended) })
	in := bufio.NewReaderSize(l, 1<<16)
	for {
		f, err := readFrame(in)
		if err != nil {
			break
		}
		f.payload = ^f.payload
		if f.action == ignore {
			continue
		}
		for range 1 + int(f.action) { // answerTwice is one more than answer
			if _, err := s.replies.Schedule(reply{l, f}, f.delay); err != nil {
				break
			}
		}
	}
	close(ended)
	_ = l.Close()
	s.mu.Lock()
	delete(s.links, l)
	s.mu.Unlock()
}

// The wheel calls reply for all connections, so it must not block on one of them. A client that
// stops reading is disconnected. Replies to a disconnected client are dropped.
func (s *server) reply(r reply) {
	if err := r.to.send(r.frame); err != nil {
		r.to.lose(err)
	}
}

// drop breaks the connection from a client's address, as a network failure would, and reports
// whether there was one.
func (s *server) drop(client net.Addr) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		if l.RemoteAddr().String() == client.String() {
			_ = l.Close()
			found = true
		}
	}
	return found
}

func (s *server) shutdown(ctx context.Context) error {
	_ = s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for l := range s.links {
		_ = l.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	_, err := s.replies.Shutdown(ctx, timingwheel.Discard)
	return err
}
