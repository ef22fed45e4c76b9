//go:build unix

package redisstore

import "syscall"

// stop suspends the server; cont resumes it.
func (srv *server) stop() { _ = srv.cmd.Process.Signal(syscall.SIGSTOP) }
func (srv *server) cont() { _ = srv.cmd.Process.Signal(syscall.SIGCONT) }
