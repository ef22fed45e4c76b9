//go:build unix

package main

import "syscall"

// connectionsAllowed is how many connections this process may have, both ends of each, and
// leave room for all else.
func connectionsAllowed() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 100
	}
	return int(min(uint64(limit.Cur), 1<<20)) / 4 //nolint:unconvert // an int64 on some systems
}
