package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is one of the tour's processes. It can be started again after a kill.
type process struct {
	name     string
	command  func() *exec.Cmd
	log      string // file for its output
	restarts bool   // restart it when it gives up, as a supervisor does

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: not running
	stdin  io.Closer
	ended  chan error // receives the result of Wait
	paused bool
	killed int // times
	pauses int // number of pauses
	gaveUp int // times
}

const (
	statusGaveUp = 1                      // exit status of a timerd that starts without its engine
	restartDelay = 100 * time.Millisecond // delay before the restart of a timerd that gave up
)

// child returns a process that runs this binary.
func child(name, role, log string, config any) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return &process{name: name, log: log, command: func() *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), roleVariable+"="+role, configVariable+"="+string(b))
		return cmd
	}}, nil
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startLocked()
}

func (p *process) startLocked() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("timerd: starting %s: %w", p.name, err)
	}
	ended := make(chan error, 1)
	p.cmd, p.stdin, p.ended, p.paused = cmd, stdin, ended, false
	go func() {
		err := cmd.Wait()
		ended <- err
		var status *exec.ExitError
		if p.restarts && errors.As(err, &status) && status.ExitCode() == statusGaveUp {
			time.Sleep(restartDelay)
			p.restart(cmd)
		}
	}()
	return nil
}

// restart starts the process again, unless it was ended or started in between.
func (p *process) restart(was *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != was {
		return
	}
	_ = p.stdin.Close()
	p.gaveUp++
	_ = p.startLocked() // it would fail as the first start did, which ended the tour
}

// kill ends the process by SIGKILL and waits for its end.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed++
	return p.endLocked(syscall.SIGKILL, 0)
}

// stop sends SIGTERM, and kills the process if it does not end within the time.
func (p *process) stop(within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.paused {
		_ = resume(p.cmd.Process)
	}
	return p.endLocked(syscall.SIGTERM, within)
}

func (p *process) endLocked(sig os.Signal, within time.Duration) error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended already
	var err error
	if within > 0 {
		select {
		case err = <-p.ended:
			p.ended <- nil
		case <-time.After(within):
			err = fmt.Errorf("timerd: %s did not end within %v", p.name, within)
			_ = p.cmd.Process.Kill()
		}
	}
	<-p.ended //nolint:errcheck // it was asked to end
	_ = p.stdin.Close()
	p.cmd, p.paused = nil, false
	return err
}

// wait returns once the process has ended on its own.
func (p *process) wait() error {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	err := <-ended
	ended <- nil // for a later stop
	if err != nil {
		return fmt.Errorf("timerd: %s: %w; see %s", p.name, err, p.log)
	}
	return nil
}

// pause suspends the process for d, or until end is closed.
func (p *process) pause(d time.Duration, end <-chan struct{}) error {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return errors.New("timerd: " + p.name + " does not run")
	}
	err := suspend(p.cmd.Process)
	if p.restarts && errors.Is(err, os.ErrProcessDone) { // it just gave up
		p.mu.Unlock()
		return nil
	}
	p.paused = true
	p.pauses++
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-end:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || !p.paused {
		return nil
	}
	p.paused = false
	return resume(p.cmd.Process)
}

// state describes the process for the table.
func (p *process) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := "runs"
	switch {
	case p.cmd == nil:
		s = "down"
	case p.paused:
		s = "PAUSED"
	}
	if p.killed > 0 {
		s += fmt.Sprintf(", killed %d×", p.killed)
	}
	if p.pauses > 0 {
		s += fmt.Sprintf(", paused %d×", p.pauses)
	}
	if p.gaveUp > 0 {
		s += fmt.Sprintf(", gave up %d×", p.gaveUp)
	}
	return s
}

func (p *process) kills() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}
