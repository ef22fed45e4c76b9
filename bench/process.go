package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// server is a rival's program in its own process, so that its CPU time is separate from the
// client's.
type server struct {
	cmd  *exec.Cmd
	addr string        // its address
	dir  string        // removed by stop; "" if there is none
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; set before done is closed
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
	stdout, output := io.Pipe()
	addr := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if _, after, ok := strings.Cut(lines.Text(), ready); ok {
				addr <- strings.TrimSpace(after)
				break
			}
		}
		_, _ = io.Copy(io.Discard, stdout) // so that the server never waits for a reader
	}()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = output, &stderr
	cmd.WaitDelay = time.Minute
	endWithParent(cmd)
	s := &server{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// endWithParent ends the server when the thread that started it ends, so this thread
		// must stay as long as the server runs.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = cmd.Wait()
			close(s.done)
		}
		_ = output.Close()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	select {
	case s.addr = <-addr:
		return s, nil
	case <-s.done:
		if s.err == nil {
			s.err = errors.New("exit status 0")
		}
		return nil, fmt.Errorf("%s ended before it listened: %w: %s", cmd.Path, s.err, firstLine(stderr.Bytes()))
	case <-time.After(serverLimit):
		_ = cmd.Process.Kill()
		<-s.done
		return nil, fmt.Errorf("%s does not listen after %v: %s", cmd.Path, serverLimit, firstLine(stderr.Bytes()))
	}
}

// stop ends the server. It returns an error unless the server ended with status 0.
func (s *server) stop() error {
	if s.dir != "" {
		defer func() { _ = os.RemoveAll(s.dir) }()
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-s.done:
	case <-time.After(serverLimit):
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("the server does not end within %v", serverLimit)
	}
	if s.err != nil {
		return fmt.Errorf("the server: %w", s.err)
	}
	return nil
}

// cpu returns the CPU time that the server has used so far.
func (s *server) cpu() (time.Duration, error) { return processCPU(s.cmd.Process.Pid) }

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
