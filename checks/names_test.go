package checks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// A program that uses several packages can test for the error of one of them.
func TestErrorsMatch(t *testing.T) {
	closed := []error{delayqueue.ErrClosed, timingwheel.ErrClosed, scheduler.ErrClosed, purgatory.ErrClosed, calls.ErrClosed, durable.ErrClosed}
	full := []error{delayqueue.ErrFull, timingwheel.ErrFull, scheduler.ErrFull, purgatory.ErrFull, calls.ErrFull, durable.ErrFull}
	for _, alike := range [][]error{closed, full} {
		for _, a := range alike {
			for _, b := range alike {
				require.True(t, errors.Is(a, b), "%v and %v", a, b)
			}
		}
	}
	require.False(t, errors.Is(closed[0], full[0]))
	require.False(t, errors.Is(full[0], closed[0]))
}
