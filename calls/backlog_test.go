package calls

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Done functions that block make no Do late. Calls of Go wait for a worker meanwhile, can
// be replied to, and end in order.
func TestDoneFunctionsBlock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := table(t, Options{Workers: 2})
		leave := make(chan struct{})
		type end struct {
			id  int
			err error
		}
		var mu sync.Mutex
		var ended []end
		for id := range 10 {
			require.NoError(t, c.Go(id, time.Second+time.Duration(id)*time.Millisecond, nothing, func(_ string, err error) {
				mu.Lock()
				ended = append(ended, end{id, err})
				mu.Unlock()
				<-leave
			}))
		}
		var callers sync.WaitGroup
		for id := range 100 {
			callers.Go(func() {
				began := time.Now()
				_, err := c.Do(context.Background(), 1000+id, 2*time.Second, nothing)
				require.ErrorIs(t, err, ErrExpired)
				require.LessOrEqual(t, time.Since(began), 2*time.Second+time.Millisecond/2)
			})
		}
		callers.Wait()
		synctest.Wait()
		require.Equal(t, []end{{0, ErrExpired}, {1, ErrExpired}}, ended)
		require.Equal(t, 8, c.Stats().Waiting)
		go func() { require.True(t, c.Reply(5, "late, but not too late")) }()
		synctest.Wait()
		require.Equal(t, end{5, nil}, ended[2])
		close(leave)
		synctest.Wait()
		require.ElementsMatch(t, []int{2, 3, 4, 6, 7, 8, 9}, func() (ids []int) {
			for _, e := range ended[3:] {
				require.ErrorIs(t, e.err, ErrExpired)
				ids = append(ids, e.id)
			}
			return ids
		}())
		require.Zero(t, c.backlog.running)
		require.Nil(t, c.backlog.due)
	})
}

// The record of a call that waits for a worker serves no other call, which would expire in
// its stead.
func TestBacklogKeepsItsRecords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := table(t, Options{Workers: 1})
		leave := make(chan struct{})
		require.NoError(t, c.Go(-1, time.Millisecond, nothing, func(string, error) { <-leave }))
		const n = 100
		for id := range n {
			require.NoError(t, c.Go(id, time.Second, nothing, func(_ string, err error) { require.NoError(t, err) }))
		}
		time.Sleep(2 * time.Second)
		for id := range n {
			require.True(t, c.Reply(id, "late, but not too late"))
			require.NoError(t, c.Go(n+id, time.Hour, nothing, func(_ string, err error) { require.ErrorIs(t, err, ErrClosed) }))
		}
		close(leave)
		synctest.Wait()
		require.Equal(t, n, c.Stats().Waiting)
	})
}

// With one worker, calls that wait for it end in the order of their deadlines.
func TestBacklogIsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := table(t, Options{Workers: 1})
		leave := make(chan struct{})
		var order []int
		for id := range 200 {
			require.NoError(t, c.Go(id, time.Duration(id+1)*time.Millisecond, nothing, func(string, error) {
				if order = append(order, id); id%50 == 0 {
					<-leave
				}
			}))
		}
		var want []int
		for id := range 200 {
			want = append(want, id)
			if id%50 == 0 {
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, want, order)
				leave <- struct{}{}
				synctest.Wait()
			}
		}
		require.Equal(t, want, order)
	})
}

// A done function that ends its worker's goroutine leaves its place to another.
func TestDoneEndsItsWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := table(t, Options{Workers: 2})
		leave := make(chan struct{})
		ended := make(chan int, 50)
		for id := range 50 {
			require.NoError(t, c.Go(id, time.Second, nothing, func(string, error) {
				<-leave
				ended <- id
				runtime.Goexit()
			}))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 48, c.Stats().Waiting)
		close(leave)
		synctest.Wait()
		require.Len(t, ended, 50)
		require.Zero(t, c.backlog.running)
		require.NoError(t, c.Go(1, time.Second, nothing, func(string, error) { ended <- 1 }))
		for range 51 {
			<-ended
		}
	})
}

// A shutdown ends what waits for a worker, and does so once.
func TestShutdownEndsTheBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, err := New[int, string](Options{Workers: 1})
		require.NoError(t, err)
		leave := make(chan struct{})
		got := make(chan error, 50)
		require.NoError(t, c.Go(-1, time.Millisecond, nothing, func(string, error) { <-leave }))
		for id := range 50 {
			require.NoError(t, c.Go(id, time.Second, nothing, func(_ string, err error) { got <- err }))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, c.backlog.due, 50)
		c.Close()
		require.Len(t, got, 50)
		close(leave)
		require.NoError(t, c.Shutdown(t.Context()))
		require.Empty(t, c.backlog.due)
		require.Len(t, got, 50)
		for range 50 {
			require.ErrorIs(t, <-got, ErrClosed)
		}
	})
}
