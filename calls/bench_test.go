package calls

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkDo makes calls that are replied to within send, while others wait. W14 of bench
// compares a Table with careful hand-written code.
func BenchmarkDo(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		for _, held := range []uint64{0, 100_000} {
			name := fmt.Sprintf("goroutines=%d/held=%d", goroutines, held)
			run := func(b *testing.B, do func(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error), reply func(id, r uint64) bool) {
				var next atomic.Uint64
				next.Store(1 << 32)
				b.ReportAllocs()
				var wg sync.WaitGroup
				each := b.N / goroutines
				b.ResetTimer()
				for range goroutines {
					wg.Go(func() {
						ctx, cancel := context.WithCancel(b.Context())
						defer cancel()
						first := next.Add(1 << 32)
						for id := first; id < first+uint64(each); id++ {
							if _, err := do(ctx, id, 30*time.Second, func() error { reply(id, id); return nil }); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			b.Run("impl=calls/"+name, func(b *testing.B) {
				t, err := New[uint64, uint64](Options{})
				require.NoError(b, err)
				for id := range held {
					require.NoError(b, t.Go(id, time.Hour, func() error { return nil }, func(uint64, error) {}))
				}
				run(b, t.Do, t.Reply)
				require.NoError(b, t.Shutdown(context.Background()))
			})
			b.Run("impl=group/"+name, func(b *testing.B) {
				t, err := New[uint64, uint64](Options{})
				require.NoError(b, err)
				g := t.Group()
				for id := range held {
					require.NoError(b, g.Go(id, time.Hour, func() error { return nil }, func(uint64, error) {}))
				}
				run(b, g.Do, g.Reply)
				require.NoError(b, t.Shutdown(context.Background()))
			})
		}
	}
}
