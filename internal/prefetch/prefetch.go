// Package prefetch tells the processor which memory will be needed soon. Go has no statement for
// that, and a load would have to wait for the memory.
package prefetch

import "unsafe"

// ValueIn begins to load the value that an interface variable refers to. I must be an interface
// type.
func ValueIn[I any](variable *I) { Line(referent(variable)) }

// referent returns the second word of an interface variable, which is a pointer to its value. The
// first word is its type.
func referent[I any](variable *I) unsafe.Pointer {
	return (*[2]unsafe.Pointer)(unsafe.Pointer(variable))[1]
}
