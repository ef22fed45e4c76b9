//go:build unix

package main

import "syscall"

// childAttributes keep a terminal's interrupt from the children, which the parent ends.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
