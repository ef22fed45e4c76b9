package prefetch

import (
	"testing"
	"unsafe"
)

// Any address is allowed: the memory may have been freed, or there is none.
func TestLine(*testing.T) {
	Line(nil)
	Line(unsafe.Pointer(new(int)))
	Line(unsafe.Add(unsafe.Pointer(new(int)), 1<<30))
}
