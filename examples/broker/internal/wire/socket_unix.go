//go:build unix

package wire

import "syscall"

// writeTo writes as much as the kernel takes at once: Go's sockets are non-blocking.
func writeTo(socket uintptr, b []byte) (n int, err error) { return syscall.Write(int(socket), b) }
