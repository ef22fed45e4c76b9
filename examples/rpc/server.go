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
	later    *timingwheel.Wheel[reply]
	running  sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{} // guarded by mu
	down  bool               // guarded by mu
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
	if s.later, err = timingwheel.New(s.reply, timingwheel.Options{Name: "rpc server"}); err != nil {
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
		down := s.down
		if !down {
			s.links[l] = struct{}{}
		}
		s.mu.Unlock()
		if down {
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
		f.word = ^f.word
		if f.what == ignore {
			continue
		}
		for range 1 + int(f.what) { // answerTwice is one more than answer
			if _, err := s.later.Schedule(reply{l, f}, f.delay); err != nil {
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
	s.down = true
	for l := range s.links {
		_ = l.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	_, err := s.later.Shutdown(ctx, timingwheel.Discard)
	return err
}
