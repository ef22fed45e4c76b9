package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// server is a rival's program in its own process, so that its CPU time is separate from the
// client's.
type server struct {
	*programs.Process
	addr string // its address
	dir  string // removed by stop; "" if there is none
}

// serverLimit limits the wait for a server to listen, and to end.
const serverLimit = 20 * time.Second

// startServer starts a server and waits until it prints "listening on host:port".
func startServer(cmd *exec.Cmd) (*server, error) { return startAwaiting(cmd, "listening on ") }

// startOwnServer starts this binary as one of servers.
func startOwnServer(name, arg string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serverVariable+"="+name+" "+arg)
	return startServer(cmd)
}

// startAwaiting starts a server and waits until it prints a line that contains ready. The rest of
// the line is the address.
func startAwaiting(cmd *exec.Cmd, ready string) (*server, error) {
	p, err := programs.Start(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{Process: p}
	return s, p.Ready(func() error {
		_, after, _ := strings.Cut(p.Output(), ready)
		addr, _, whole := strings.Cut(after, "\n")
		if !whole {
			return fmt.Errorf("no line with %q", ready)
		}
		s.addr = strings.TrimSpace(addr)
		return nil
	})
}

// stop ends the server. It returns an error unless the server ended with status 0.
func (s *server) stop() error {
	err := s.Stop(serverLimit)
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if err != nil {
		return fmt.Errorf("the server: %w", err)
	}
	return nil
}

// cpu returns the CPU time that the server has used so far.
func (s *server) cpu() (time.Duration, error) { return processCPU(s.Pid) }

// waitIdle waits, for at most serverLimit, until the server is idle, that is, until it has read and
// parked all requests. The CPU time of a server that is never idle counts in its metrics.
func (s *server) waitIdle() error {
	const span = 50 * time.Millisecond
	for idleSamples, end := 0, time.Now().Add(serverLimit); idleSamples < 2 && time.Now().Before(end); {
		before, err := s.cpu()
		if errors.Is(err, errors.ErrUnsupported) {
			time.Sleep(20 * span)
			return nil
		}
		time.Sleep(span)
		after, err2 := s.cpu()
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if idleSamples++; after-before > span/50 {
			idleSamples = 0
		}
	}
	return nil
}
