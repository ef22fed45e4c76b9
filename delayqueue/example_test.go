package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// A worker takes jobs as they become due.
func Example() {
	q := delayqueue.New[string]()
	now := time.Now()
	_, _ = q.Push("third", now.Add(3*time.Millisecond))
	_, _ = q.Push("first", now.Add(1*time.Millisecond))
	cancelled, _ := q.Push("second", now.Add(2*time.Millisecond))
	q.Remove(cancelled)

	for range 2 {
		job, err := q.Take(context.Background())
		fmt.Println(job, err)
	}
	// Output:
	// first <nil>
	// third <nil>
}

func ExampleNew() {
	q := delayqueue.New[int]()
	fmt.Println(q.Len())
	// Output: 0
}

func ExampleQueue_Push() {
	q := delayqueue.New[string]()
	_, err := q.Push("job", time.Now().Add(time.Minute))
	fmt.Println(err, q.Len())

	q.Close()
	_, err = q.Push("too late", time.Now())
	fmt.Println(errors.Is(err, delayqueue.ErrClosed))
	// Output:
	// <nil> 1
	// true
}

func ExampleQueue_Remove() {
	q := delayqueue.New[string]()
	h, _ := q.Push("job", time.Now().Add(time.Minute))
	fmt.Println(q.Remove(h))
	_, again := q.Remove(h)
	fmt.Println(again)
	// Output:
	// job true
	// false
}

func ExampleQueue_Reset() {
	q := delayqueue.New[string]()
	now := time.Now()
	h, _ := q.Push("lease of a", now.Add(time.Minute))
	_, _ = q.Push("lease of b", now.Add(time.Hour))
	fmt.Println(q.Reset(h, now.Add(2*time.Hour))) // a is still alive

	next, _ := q.Peek()
	fmt.Println(next.Value)
	// Output:
	// true
	// lease of b
}

func ExampleQueue_Peek() {
	q := delayqueue.New[string]()
	deadline := time.Now().Add(time.Minute)
	_, _ = q.Push("job", deadline)
	head, ok := q.Peek()
	fmt.Println(head.Value, head.Deadline.Equal(deadline), ok)
	fmt.Println(q.Remove(head.Handle)) // only if it is still in the queue
	// Output:
	// job true true
	// job true
}

func ExampleQueue_All() {
	q := delayqueue.New[string]()
	now := time.Now()
	_, _ = q.Push("tomorrow", now.Add(24*time.Hour))
	_, _ = q.Push("today", now.Add(time.Hour))
	_, _ = q.Push("next year", now.Add(365*24*time.Hour))
	for e := range q.All() {
		if time.Until(e.Deadline) > 100*24*time.Hour {
			q.Remove(e.Handle)
		}
	}

	inOrder := slices.SortedFunc(q.All(), func(a, b delayqueue.Element[string]) int {
		return a.Deadline.Compare(b.Deadline)
	})
	for _, e := range inOrder {
		fmt.Println(e.Value, e.Deadline.Sub(now))
	}
	// Output:
	// today 1h0m0s
	// tomorrow 24h0m0s
}

func ExampleQueue_Len() {
	q := delayqueue.New[string]()
	_, _ = q.Push("due", time.Now())
	_, _ = q.Push("not due", time.Now().Add(time.Hour))
	fmt.Println(q.Len())
	// Output: 2
}

func ExampleQueue_Poll() {
	q := delayqueue.New[string]()
	_, _ = q.Push("due", time.Now())
	_, _ = q.Push("not due", time.Now().Add(time.Hour))
	fmt.Println(q.Poll())
	_, ok := q.Poll()
	fmt.Println(ok)
	// Output:
	// due true
	// false
}

func ExampleQueue_PollElement() {
	q := delayqueue.New[string]()
	deadline := time.Now().Add(-time.Minute)
	h, _ := q.Push("job", deadline)
	e, ok := q.PollElement()
	fmt.Println(e.Value, e.Deadline.Equal(deadline), e.Handle == h, ok)
	// Output: job true true true
}

func ExampleQueue_PollAll() {
	q := delayqueue.New[string]()
	now := time.Now()
	_, _ = q.Push("b", now)
	_, _ = q.Push("c", now) // as b: behind it
	_, _ = q.Push("a", now.Add(-time.Second))
	_, _ = q.Push("not due", now.Add(time.Hour))
	fmt.Println(q.PollAll(nil))
	// Output: [a b c]
}

func ExampleQueue_PollN() {
	q := delayqueue.New[int]()
	for i := range 5 {
		_, _ = q.Push(i, time.Now())
	}
	batch := make([]int, 0, 2)
	for {
		batch = q.PollN(batch[:0], cap(batch)) // others get the lock in between
		if len(batch) == 0 {
			break
		}
		fmt.Println(batch)
	}
	// Output:
	// [0 1]
	// [2 3]
	// [4]
}

func ExampleQueue_Take() {
	q := delayqueue.New[string]()
	_, _ = q.Push("job", time.Now().Add(time.Hour))

	go q.Push("sooner", time.Now().Add(time.Millisecond)) // shortens the wait
	fmt.Println(q.Take(context.Background()))

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := q.Take(ctx)
	fmt.Println(err)
	// Output:
	// sooner <nil>
	// context deadline exceeded
}

func ExampleQueue_TakeElement() {
	q := delayqueue.New[string]()
	deadline := time.Now().Add(time.Millisecond)
	_, _ = q.Push("job", deadline)
	e, err := q.TakeElement(context.Background())
	fmt.Println(e.Value, err)
	fmt.Println("late:", time.Since(e.Deadline) >= 0)
	// Output:
	// job <nil>
	// late: true
}

func ExampleQueue_Clear() {
	q := delayqueue.New[string]()
	now := time.Now()
	h, _ := q.Push("tomorrow", now.Add(24*time.Hour))
	_, _ = q.Push("today", now.Add(time.Hour))
	for _, e := range q.Clear() {
		fmt.Println(e.Value, e.Deadline.Sub(now))
	}
	_, ok := q.Remove(h)
	fmt.Println(ok, q.Len())

	_, err := q.Push("the queue is open", now)
	fmt.Println(err)
	// Output:
	// today 1h0m0s
	// tomorrow 24h0m0s
	// false 0
	// <nil>
}

func ExampleQueue_Close() {
	q := delayqueue.New[string]()
	now := time.Now()
	_, _ = q.Push("tomorrow", now.Add(24*time.Hour))
	_, _ = q.Push("today", now.Add(time.Hour))
	for _, e := range q.Close() {
		fmt.Println(e.Value, e.Deadline.Sub(now))
	}

	_, err := q.Take(context.Background())
	fmt.Println(err)
	// Output:
	// today 1h0m0s
	// tomorrow 24h0m0s
	// delayqueue: closed
}

func ExampleQueue_Stats() {
	q := delayqueue.New[string]()
	_, _ = q.Push("job", time.Now())
	_, _ = q.Take(context.Background()) // does not block, so there is no taker to wake
	fmt.Printf("%+v\n", q.Stats())
	// Output: {Wakeups:0 Promoted:0 Rearmed:0 Stale:0}
}
