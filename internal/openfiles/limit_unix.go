//go:build unix

package openfiles

import "syscall"

// Limit returns how many files this process may have open: at most 1<<30, and 0 if the system does
// not say.
func Limit() int {
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // an int64 on some systems
}
