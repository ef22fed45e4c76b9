//go:build unix

package main

import "syscall"

// connectionsAllowed returns the number of connections that this process may have, with both ends
// in it and files to spare.
func connectionsAllowed() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 100
	}
	return int(min(uint64(limit.Cur), 1<<20)) / 4 //nolint:unconvert // an int64 on some systems
}
