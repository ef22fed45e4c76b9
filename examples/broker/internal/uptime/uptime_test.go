package uptime

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held := make(chan struct{})
		var c Clock
		var hold atomic.Bool
		go c.Run(ctx, 10*time.Millisecond, func(ctx context.Context) error {
			if hold.Load() {
				<-held
			}
			return ctx.Err()
		})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, time.Second, c.Now())

		hold.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, time.Second, c.Now(), "it stands while it is held up")
		hold.Store(false)
		close(held)
		synctest.Wait()
		require.LessOrEqual(t, c.Now(), time.Second+40*time.Millisecond, "what was missed does not count")
		before := c.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		require.InDelta(t, time.Second, c.Now()-before, float64(20*time.Millisecond))
		cancel()
		synctest.Wait()
	})
}
