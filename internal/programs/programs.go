// Package programs starts programs, such as redis-server, for tests, benchmarks and tours.
package programs

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// startLimit limits the wait for a program that starts.
const startLimit = time.Minute

// Process is a program that was started.
type Process struct {
	*os.Process
	Ended  <-chan struct{} // closed when it has ended
	cmd    *exec.Cmd
	err    error // how it ended; set before Ended is closed
	output output
}

// Start starts a program, which does not outlive this process: on Linux the kernel kills it even if
// this process is killed. The process keeps its output, unless cmd directs it elsewhere.
func Start(cmd *exec.Cmd) (*Process, error) {
	ended := make(chan struct{})
	p := &Process{Ended: ended, cmd: cmd}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &p.output, &p.output
		cmd.WaitDelay = time.Second // a fork of the program may outlive it, with the same output
	}
	endWithParent(cmd)
	started := make(chan error)
	go func() {
		// The kernel ends the program with the thread that started it, so the thread must stay.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.Process = cmd.Process
	return p, nil
}

// StartReady starts a program and waits until ready succeeds.
func StartReady(cmd *exec.Cmd, ready func() error) (*Process, error) {
	p, err := Start(cmd)
	if err == nil {
		err = p.Ready(ready)
	}
	return p, err
}

// Ready waits until ready succeeds. If the program ends before, or does not become ready, Ready
// kills it and returns an error that shows its output.
func (p *Process) Ready(ready func() error) error {
	if err := Await(p.Ended, ready); err != nil {
		p.Kill()
		return fmt.Errorf("%s: %w (%v)\n%s", p.cmd, err, p.cmd.ProcessState, p.Output())
	}
	return nil
}

// Await calls ready until it succeeds, ended is closed, or a minute has passed.
func Await(ended <-chan struct{}, ready func() error) error {
	for begun := time.Now(); ; {
		err := ready()
		select {
		case <-ended: // if ready succeeds, another program answers
			return errors.Join(errors.New("ended before it was ready"), err)
		default:
		}
		if err == nil || time.Since(begun) > startLimit {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ended:
		}
	}
}

// Accepts returns a function that succeeds if an address accepts connections.
func Accepts(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Wait waits until the program has ended, and returns an error unless it ended with status 0.
func (p *Process) Wait() error {
	<-p.Ended
	return p.err
}

// Kill ends the program at once, as a crash would, even if it is suspended.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	<-p.Ended
}

// Stop asks the program to end, and kills it if it does not end within the time. It returns an
// error unless the program ended with status 0.
func (p *Process) Stop(within time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.Ended:
		return p.err
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("did not end within %v", within)
	}
}

// output collects what a program prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// Output returns what the program has printed so far.
func (p *Process) Output() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.text.String()
}
