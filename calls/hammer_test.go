package calls

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// numbered is a group with its number; answer is a reply from one group to a call.
type numbered struct {
	*Group[int, answer]
	number int64
}

type answer struct {
	group int64
	id    int
}

// Lessons calls 2 and 3. Of a reply, an expiry, a cancel, a failure, a lost connection and a
// failed send exactly one ends a call, and a reused record is confused neither with another
// call nor with another group's.
func TestHammer(t *testing.T) {
	c, err := New[int, answer](Options{Tick: time.Microsecond, MaxPending: 1000})
	require.NoError(t, err)
	const rounds = 30_000
	var group atomic.Pointer[numbered]
	group.Store(&numbered{c.Group(), 1})
	var ended, doneCalls, started atomic.Int64
	stop := make(chan struct{})
	var others, callers sync.WaitGroup
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			g := group.Load()
			id := n % 8
			g.Reply(id, answer{g.number, id})
			g.Fail((id+3)%8, io.EOF)
			if n%8 == 0 {
				runtime.Gosched() // on one processor the others would only run every 10 ms
			}
			if n%64 == 0 {
				for w := range c.All() {
					if w.ID < 0 || w.ID >= 8 || w.Age < 0 {
						t.Errorf("All yielded %v", w)
					}
				}
				c.Stats()
			}
			if n%64 == 63 {
				group.Store(&numbered{c.Group(), g.number + 1})
				g.CloseWithError(io.ErrUnexpectedEOF)
			}
		}
	})
	check := func(g *numbered, id int, timeout time.Duration, r answer, err error) {
		if err == nil && (r != answer{g.number, id}) {
			t.Errorf("call %d of group %d was given the reply %v", id, g.number, r)
		}
		if errors.Is(err, ErrExpired) && timeout == time.Hour {
			t.Errorf("call %d has expired by the timeout of another", id)
		}
	}
	for caller := range 4 {
		callers.Go(func() {
			for n := range rounds {
				g, id := group.Load(), (n*7+caller)%8
				ctx, cancel := context.WithCancel(context.Background())
				send := func() error {
					switch n % 5 {
					case 0:
						return io.ErrClosedPipe
					case 1:
						cancel()
					}
					return nil
				}
				timeout := time.Duration(n%50+1) * time.Microsecond
				if n%3 == 0 {
					timeout = time.Hour
				}
				if n%2 == 0 {
					r, err := g.Do(ctx, id, timeout, send)
					check(g, id, timeout, r, err)
					ended.Add(1)
				} else {
					calls := new(atomic.Int64)
					err := g.Go(id, timeout, send, func(r answer, err error) {
						check(g, id, timeout, r, err)
						if calls.Add(1) != 1 {
							t.Error("done was called twice")
						}
						doneCalls.Add(1)
					})
					if err == nil {
						started.Add(1)
					}
				}
				cancel()
			}
		})
	}
	callers.Wait()
	close(stop)
	others.Wait()
	require.NoError(t, c.Shutdown(context.Background()))
	require.Equal(t, int64(4*rounds/2), ended.Load())
	require.Equal(t, started.Load(), doneCalls.Load())
	st := c.Stats()
	require.Zero(t, st.Pending)
	require.Zero(t, c.limit.Held())
	sum := st.Completed + st.Expired + st.Cancelled + st.Closed + st.Failed + st.Duplicates + st.RefusedFull + st.RefusedClosed
	require.Equal(t, uint64(4*rounds), sum, "each call is counted once")
}
