//go:build amd64 || arm64

package prefetch

import "unsafe"

// Line begins to load the cache line at p, without waiting for it. It reads nothing and never
// faults, whatever p is.
//
//go:noescape
func Line(p unsafe.Pointer)
