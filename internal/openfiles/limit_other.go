//go:build !unix

package openfiles

// Limit returns how many files this process may have open. Systems other than Unix have no such
// limit, so the number is only a large one.
func Limit() int { return 1 << 20 }
