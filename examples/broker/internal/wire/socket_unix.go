//go:build unix

package wire

import "syscall"

// writeTo writes what the kernel takes at once: the sockets of Go do not block.
func writeTo(socket uintptr, b []byte) (n int, err error) { return syscall.Write(int(socket), b) }
