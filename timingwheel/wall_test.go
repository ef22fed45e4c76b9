package timingwheel

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// withWall returns t with the wall clock reading of wall and its own monotonic reading, as if
// the wall clock had been set before t was read. A test cannot set the clock itself. withWall
// relies on time.Time's layout, which TestWithWall checks.
func withWall(t, wall time.Time) time.Time {
	type layout struct {
		wall uint64 // 1 bit: has a monotonic reading; 33 bits: seconds; 30 bits: nanoseconds
		ext  int64  // the monotonic reading
		loc  *time.Location
	}
	l := *(*layout)(unsafe.Pointer(&t))
	l.wall = (*layout)(unsafe.Pointer(&wall)).wall
	return *(*time.Time)(unsafe.Pointer(&l))
}

func TestWithWall(t *testing.T) {
	now := time.Now()
	set := withWall(now, now.Add(-time.Hour))
	require.Zero(t, now.Sub(set))
	require.Equal(t, time.Hour, now.Round(0).Sub(set.Round(0)))
}
