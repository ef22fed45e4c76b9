// Package prefetch tells the processor which memory will be needed soon. Go has no statement for
// that, and a load would have to wait for the memory.
package prefetch
