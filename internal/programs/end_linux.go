package programs

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the program when the thread that starts it ends, for example
// because this process is killed.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
