package delayqueue

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// An element takes 40 bytes and its value, rounded up to the alignment of a word.
func TestElementsAreSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("the machine has no 64-bit words: an int64 is aligned to 4 bytes")
	}
	require.EqualValues(t, 40, unsafe.Sizeof(item{})+unsafe.Sizeof(slot[struct{}]{}))
	require.EqualValues(t, 48, unsafe.Sizeof(item{})+unsafe.Sizeof(slot[byte]{}))
	require.EqualValues(t, 56, unsafe.Sizeof(item{})+unsafe.Sizeof(slot[string]{}))
}
