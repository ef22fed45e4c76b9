//go:build unix

package programs

import "syscall"

// CanSuspend reports whether the system can suspend programs.
const CanSuspend = true

// Suspend stops the program by SIGSTOP.
func (p *Process) Suspend() error { return p.Signal(syscall.SIGSTOP) }

// Resume continues the program by SIGCONT.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
