//go:build unix

package tour

import (
	"os"
	"syscall"
)

const canPause = true

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }

// childAttributes keep an interrupt at the terminal from the children: the parent
// ends them.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
