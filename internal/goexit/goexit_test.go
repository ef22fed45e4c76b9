package goexit

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each item is passed once, in order, whichever of them end the goroutine or panic.
func TestEach(t *testing.T) {
	all := []int{0, 1, 2, 3}
	for ends := range 1 << len(all) {
		for _, end := range []func(){runtime.Goexit, func() { panic("no") }} {
			var got []int
			returned := false
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { _ = recover() }()
				Each(all, func(i int) {
					got = append(got, i)
					if ends>>i&1 == 1 {
						end()
					}
				})
				returned = true
			})
			wg.Wait()
			require.True(t, slices.Equal(all, got), "%b: %v", ends, got)
			require.Equal(t, ends == 0, returned)
		}
	}
}
