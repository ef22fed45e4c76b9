//go:build !linux

package programs

import "os/exec"

// endWithParent does nothing here: a program outlives this process if this process is killed.
func endWithParent(*exec.Cmd) {}
