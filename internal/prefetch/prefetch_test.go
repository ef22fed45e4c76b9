package prefetch

import (
	"fmt"
	"testing"
	"unsafe"
)

// Any address is allowed: the memory may have been freed, or there is none.
func TestLine(*testing.T) {
	Line(nil)
	Line(unsafe.Pointer(new(int)))
	Line(unsafe.Add(unsafe.Pointer(new(int)), 1<<30))
}

// Whether or not the interface has methods.
func TestReferent(t *testing.T) {
	p := new(pointer)
	var empty any = p
	var stringer fmt.Stringer = p
	for name, found := range map[string]unsafe.Pointer{"any": referent(&empty), "Stringer": referent(&stringer)} {
		if found != unsafe.Pointer(p) {
			t.Errorf("%s: %p, must be %p", name, found, p)
		}
	}
	stringer = nil
	ValueIn(&stringer)
}

type pointer struct{ _ int }

func (*pointer) String() string { return "" }
