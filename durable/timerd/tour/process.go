package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// process is one of the tour's processes. It can be started again after a kill.
type process struct {
	name     string
	command  func() *exec.Cmd
	log      string // file for its output
	restarts bool   // restart it when it gives up, as a supervisor does

	mu      sync.Mutex
	running *programs.Process // nil: ended by kill or stop
	killed  int               // times
	gaveUp  int               // times
}

const (
	statusGaveUp = 1                      // exit status of a timerd that starts without its engine
	restartDelay = 100 * time.Millisecond // delay before the restart of a timerd that gave up
)

// child returns a process that runs this binary.
func child(name, log string, config childConfig) (*process, error) {
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
		cmd.Env = append(os.Environ(), configVariable+"="+string(b))
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
	if _, err := cmd.StdinPipe(); err != nil { // is closed when this process ends
		return err
	}
	running, err := programs.Start(cmd)
	if err != nil {
		return fmt.Errorf("timerd: starting %s: %w", p.name, err)
	}
	p.running = running
	if p.restarts {
		go p.supervise(running)
	}
	return nil
}

// supervise starts the process again when it gives up, unless it was ended or started in between.
func (p *process) supervise(was *programs.Process) {
	var status *exec.ExitError
	if !errors.As(was.Wait(), &status) || status.ExitCode() != statusGaveUp {
		return
	}
	time.Sleep(restartDelay)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == was {
		p.gaveUp++
		_ = p.startLocked() // it would fail as the first start did, which ended the tour
	}
}

// kill ends the process by SIGKILL and waits for its end.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed++
	if p.running != nil {
		p.running.Kill()
		p.running = nil
	}
}

// stop sends SIGTERM, and kills the process if it does not end within the time.
func (p *process) stop(within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		_ = p.running.Resume()
		_ = p.running.Stop(within)
		p.running = nil
	}
}

// wait returns once the process has ended on its own.
func (p *process) wait() error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if err := running.Wait(); err != nil {
		return fmt.Errorf("timerd: %s: %w; see %s", p.name, err, p.log)
	}
	return nil
}

// pause suspends the process for d, or until end is closed.
func (p *process) pause(d time.Duration, end <-chan struct{}) error {
	p.mu.Lock()
	running, err := p.running, errors.New("does not run")
	if running != nil {
		err = running.Suspend()
	}
	p.mu.Unlock()
	if p.restarts && errors.Is(err, os.ErrProcessDone) { // it just gave up
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-end:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != running { // ended in between
		return nil
	}
	return running.Resume()
}

func (p *process) kills() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}
