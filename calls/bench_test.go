package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// byHand is what a careful hand writes instead of a Table: a map with a mutex, and a timer
// of the runtime's for each call.
type byHand struct {
	mu    sync.Mutex
	calls map[uint64]*handCall
}

type handCall struct {
	done  chan handResult
	timer *time.Timer
}

type handResult struct {
	reply uint64
	err   error
}

var errHandExpired = errors.New("expired")

func (h *byHand) do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error) {
	c := &handCall{done: make(chan handResult, 1)}
	h.mu.Lock()
	if h.calls[id] != nil {
		h.mu.Unlock()
		return 0, ErrDuplicate
	}
	h.calls[id] = c
	c.timer = time.AfterFunc(timeout, func() {
		if h.take(id, c) {
			c.done <- handResult{err: errHandExpired}
		}
	})
	h.mu.Unlock()
	defer c.timer.Stop()
	if err := send(); err != nil && h.take(id, c) {
		return 0, err
	}
	select {
	case r := <-c.done:
		return r.reply, r.err
	case <-ctx.Done():
		if h.take(id, c) {
			return 0, ctx.Err()
		}
		r := <-c.done
		return r.reply, r.err
	}
}

func (h *byHand) take(id uint64, c *handCall) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[id] != c {
		return false
	}
	delete(h.calls, id)
	return true
}

func (h *byHand) reply(id, r uint64) bool {
	h.mu.Lock()
	c := h.calls[id]
	delete(h.calls, id)
	h.mu.Unlock()
	if c == nil {
		return false
	}
	c.done <- handResult{reply: r}
	return true
}

// BenchmarkDo makes calls that are replied to within send, beside others that wait.
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
			b.Run("impl=hand/"+name, func(b *testing.B) {
				h := &byHand{calls: map[uint64]*handCall{}}
				for id := range held {
					c := &handCall{done: make(chan handResult, 1)}
					c.timer = time.AfterFunc(time.Hour, func() { h.take(id, c) })
					h.calls[id] = c
				}
				run(b, h.do, h.reply)
				for _, c := range h.calls {
					c.timer.Stop()
				}
			})
		}
	}
}
