package delayqueue

import (
	stdheap "container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// rival is the usual handwritten queue: container/heap of pointers under a mutex, with the
// index kept for removal.
type rival struct {
	mu    sync.Mutex
	items rivalHeap
}

type rivalItem struct {
	value    int
	deadline time.Time
	index    int
}

type rivalHeap []*rivalItem

func (h rivalHeap) Len() int           { return len(h) }
func (h rivalHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h rivalHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *rivalHeap) Push(x any) {
	it := x.(*rivalItem)
	it.index = len(*h)
	*h = append(*h, it)
}
func (h *rivalHeap) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}

func (r *rival) push(v int, deadline time.Time) *rivalItem {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := &rivalItem{value: v, deadline: deadline}
	stdheap.Push(&r.items, it)
	return it
}

func (r *rival) remove(it *rivalItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stdheap.Remove(&r.items, it.index)
}

func (r *rival) poll() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.items) == 0 || time.Until(r.items[0].deadline) > 0 {
		return 0, false
	}
	return stdheap.Pop(&r.items).(*rivalItem).value, true
}

var benchLens = []int{1, 1_000, 1_000_000}

// spread returns deadlines scattered over a second, which advances as much as in a queue of n
// elements whose head is replaced. It draws from a table, so that the generator is not
// measured.
func spread(from time.Time, n int) func(i int) time.Time {
	var table [4096]time.Time
	r := rand.New(rand.NewPCG(1, 2))
	for i := range table {
		table[i] = from.Add(time.Duration(r.Int64N(int64(time.Second))))
	}
	step := time.Second / time.Duration(2*n)
	return func(i int) time.Time { return table[i&4095].Add(time.Duration(i) * step) }
}

func BenchmarkPushRemove(b *testing.B) {
	for _, n := range benchLens {
		at := spread(time.Now().Add(time.Hour), n)
		b.Run(fmt.Sprintf("queue=delayqueue/len=%d", n), func(b *testing.B) {
			q := New[int]()
			for i := range n - 1 {
				_, _ = q.Push(i, at(i-n))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h, _ := q.Push(i, at(i))
				q.Remove(h)
			}
		})
		b.Run(fmt.Sprintf("queue=container-heap/len=%d", n), func(b *testing.B) {
			q := new(rival)
			for i := range n - 1 {
				q.push(i, at(i-n))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.remove(q.push(i, at(i)))
			}
		})
	}
}

// BenchmarkPushPoll keeps the length and removes the head each time: the whole depth of the
// heap.
func BenchmarkPushPoll(b *testing.B) {
	for _, n := range benchLens {
		at := spread(time.Now().Add(-10*365*24*time.Hour), n)
		b.Run(fmt.Sprintf("queue=delayqueue/len=%d", n), func(b *testing.B) {
			q := New[int]()
			for i := range n - 1 {
				_, _ = q.Push(i, at(i-n))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, _ = q.Push(i, at(i))
				q.Poll()
			}
		})
		b.Run(fmt.Sprintf("queue=container-heap/len=%d", n), func(b *testing.B) {
			q := new(rival)
			for i := range n - 1 {
				q.push(i, at(i-n))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.push(i, at(i))
				q.poll()
			}
		})
	}
}

func BenchmarkReset(b *testing.B) {
	for _, n := range benchLens {
		b.Run(fmt.Sprintf("len=%d", n), func(b *testing.B) {
			at := spread(time.Now().Add(time.Hour), n)
			q := New[int]()
			handles := make([]Handle, n)
			for i := range handles {
				handles[i], _ = q.Push(i, at(i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Reset(handles[(i*7919)%n], at(i+1))
			}
		})
	}
}

// BenchmarkPushTake measures an element that is due at once through a sleeping taker: two
// goroutine switches.
func BenchmarkPushTake(b *testing.B) {
	for _, takers := range []int{1, 4} {
		b.Run(fmt.Sprintf("takers=%d", takers), func(b *testing.B) {
			q := New[int]()
			back := make(chan int)
			var wg sync.WaitGroup
			for range takers {
				wg.Go(func() {
					for {
						v, err := q.Take(b.Context())
						if err != nil {
							return
						}
						back <- v
					}
				})
			}
			now := time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, _ = q.Push(i, now)
				<-back
			}
			q.Close()
			wg.Wait()
		})
	}
}
