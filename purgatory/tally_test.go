package purgatory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A goroutine that finds its part locked takes another, and there are as many parts as there
// were processors.
func TestLockedTallyIsSkipped(t *testing.T) {
	p := open[int](t, Options{})
	p.tallies.maxParts = 3
	met := map[*tally]bool{}
	for range 3 {
		part := p.lockTally()
		require.False(t, met[part])
		met[part] = true
		p.putTally(part) // the pool returns the same part, and it is locked
	}
	for part := range met {
		part.mu.Unlock()
	}
	require.Len(t, p.tallies.parts, 3)
	clear(met)
	for range 3 {
		met[p.anotherTally()] = true
	}
	require.Len(t, met, 3, "one after the other")
	requireEmpty(t, p)
	mustShutdown(t, p)
}
