package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// maxLine bounds the length of a line, so that a client that never ends its line cannot exhaust
// memory.
const maxLine = 1024

// server answers each line with the same line, and drops silent connections.
type server struct {
	on       network.Network
	listener net.Listener
	idle     time.Duration
	limit    int
	deadline *keyed.Table[uint64, net.Conn] // by connection number
	lastID   atomic.Uint64
	handlers sync.WaitGroup

	dropped, refused, lines atomic.Int64
}

func listen(on network.Network, addr string, idle time.Duration, limit int) (*server, error) {
	l, err := on.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &server{on: on, listener: l, idle: idle, limit: limit}
	s.deadline, err = keyed.New(s.drop, timingwheel.Options{Tick: 10 * time.Millisecond, MaxPending: limit})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.handlers.Add(1)
	go s.accept()
	return s, nil
}

func (s *server) addr() string { return s.listener.Addr().String() }

// drop is the expiry function: the connection has been silent for too long. Closing it ends its
// handler's Read.
func (s *server) drop(_ uint64, c net.Conn) {
	s.dropped.Add(1)
	_ = c.Close()
}

func (s *server) accept() {
	defer s.handlers.Done()
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // most likely out of files: some will be closed
			time.Sleep(10 * time.Millisecond)
			continue
		}
		id := s.lastID.Add(1)
		if err := s.deadline.Set(id, c, s.idle); err != nil {
			s.refused.Add(1)
			_ = c.Close()
			continue
		}
		s.handlers.Add(1)
		go s.handle(id, c)
	}
}

// handle reads lines until the connection ends. Each line extends the deadline with one Touch,
// which moves no timer.
func (s *server) handle(id uint64, c net.Conn) {
	defer s.handlers.Done()
	defer func() {
		s.deadline.Remove(id) // false if it was dropped: the table no longer holds it
		_ = c.Close()
	}()
	lines := bufio.NewReaderSize(c, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil || s.deadline.Touch(id, s.idle) != nil {
			return
		}
		s.lines.Add(1)
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}

// shutdown drops all connections and waits for the handlers.
func (s *server) shutdown(ctx context.Context) error {
	err := s.listener.Close()
	entries, shut := s.deadline.Shutdown(ctx, timingwheel.Return)
	for _, e := range entries {
		_ = e.Value.Value.Close()
	}
	done := make(chan struct{})
	go func() {
		s.handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("handlers still running: %w", ctx.Err())
	}
	return errors.Join(err, shut)
}
