//go:build unix

package main

import (
	"os"
	"syscall"
)

const canPause = true

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }

// childAttributes keep a terminal's interrupt from the children, which the parent ends.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
