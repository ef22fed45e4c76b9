package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// A worker takes jobs as they fall due.
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

func ExampleQueue_Move() {
	q := delayqueue.New[string]()
	now := time.Now()
	h, _ := q.Push("lease of a", now.Add(time.Minute))
	_, _ = q.Push("lease of b", now.Add(time.Hour))
	fmt.Println(q.Move(h, now.Add(2*time.Hour))) // a is still alive

	next, _, _ := q.Peek()
	fmt.Println(next)
	// Output:
	// true
	// lease of b
}

func ExampleQueue_Peek() {
	q := delayqueue.New[string]()
	deadline := time.Now().Add(time.Minute)
	_, _ = q.Push("job", deadline)
	v, at, ok := q.Peek()
	fmt.Println(v, at.Equal(deadline), ok)
	// Output: job true true
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

func ExampleQueue_Take() {
	q := delayqueue.New[string]()
	_, _ = q.Push("job", time.Now().Add(time.Hour))

	go q.Push("urgent", time.Now().Add(time.Millisecond)) // shortens the wait
	fmt.Println(q.Take(context.Background()))

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := q.Take(ctx)
	fmt.Println(err)
	// Output:
	// urgent <nil>
	// context deadline exceeded
}

func ExampleQueue_Close() {
	q := delayqueue.New[string]()
	now := time.Now()
	_, _ = q.Push("tomorrow", now.Add(24*time.Hour))
	_, _ = q.Push("today", now.Add(time.Hour))
	fmt.Println(q.Close())

	_, err := q.Take(context.Background())
	fmt.Println(err)
	// Output:
	// [today tomorrow]
	// delayqueue: closed
}

func ExampleQueue_Stats() {
	q := delayqueue.New[string]()
	_, _ = q.Push("job", time.Now())
	_, _ = q.Take(context.Background()) // does not block, so there is nobody to wake
	fmt.Printf("%+v\n", q.Stats())
	// Output: {Wakeups:0 Promoted:0 Rearmed:0 Stale:0}
}
