package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// waiter is an operation that waits until it is marked as ready.
type waiter struct {
	name  string
	ready func() bool
	says  bool                   // also print the cause
	done  chan purgatory.Outcome // nil: print the outcome
}

func (w *waiter) TryComplete() bool { return w.ready != nil && w.ready() }

func (w *waiter) Complete(o purgatory.Outcome, cause error) {
	switch {
	case w.done != nil:
		w.done <- o
	case w.says:
		fmt.Printf("%s %v: %v\n", w.name, o, cause)
	default:
		fmt.Println(w.name, o)
	}
}

func start(o purgatory.Options) *purgatory.Purgatory[string] {
	p, err := purgatory.New[string](o)
	if err != nil {
		panic(err)
	}
	return p
}

func ExampleNew() {
	p, err := purgatory.New[string](purgatory.Options{MaxPending: 1_000_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Shutdown(context.Background())

	_, err = purgatory.New[string](purgatory.Options{MaxPending: -4})
	fmt.Println(err)
	// Output: purgatory: Options.MaxPending is -4, must be 0 (no bound) or more
}

// produce is a request with acks=all: it is answered when both followers have the record, or
// when its timeout passes.
type produce struct {
	offset   int
	replicas *replicas
	answered chan bool
}

type replicas struct {
	mu  sync.Mutex
	end map[string]int // offset up to which each follower has the log
}

func (r *replicas) fetched(follower string, upTo int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end[follower] = upTo
}

func (p *produce) TryComplete() bool {
	p.replicas.mu.Lock()
	defer p.replicas.mu.Unlock()
	for _, end := range p.replicas.end {
		if end <= p.offset {
			return false
		}
	}
	return true
}

func (p *produce) Complete(o purgatory.Outcome, _ error) {
	switch o {
	case purgatory.Completed:
		fmt.Printf("produce at offset %d: acknowledged\n", p.offset)
	case purgatory.Expired:
		fmt.Printf("produce at offset %d: REQUEST_TIMED_OUT\n", p.offset)
	default:
		fmt.Printf("produce at offset %d: NOT_LEADER_OR_FOLLOWER (%v)\n", p.offset, o)
	}
	close(p.answered)
}

// A producer asks for the acknowledgement of all replicas.
func ExamplePurgatory_TryCompleteElseWatch() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())
	r := &replicas{end: map[string]int{"follower 1": 7, "follower 2": 7}}

	// No follower has offset 7 yet, so the request waits.
	h, _ := p.TryCompleteElseWatch(context.Background(), &produce{7, r, make(chan bool)}, 30*time.Second, "orders-0")
	fmt.Println("waits:", !h.IsZero())

	// Check the key after every change that may complete the request.
	r.fetched("follower 1", 8)
	fmt.Println("completed:", p.CheckAndComplete("orders-0"))
	r.fetched("follower 2", 8)
	fmt.Println("completed:", p.CheckAndComplete("orders-0"))

	// Both followers have this offset, so it is answered within the call.
	h, _ = p.TryCompleteElseWatch(context.Background(), &produce{6, r, make(chan bool)}, 30*time.Second, "orders-0")
	fmt.Println("waits:", !h.IsZero())

	// This one is not acknowledged in time.
	late := &produce{8, r, make(chan bool)}
	_, _ = p.TryCompleteElseWatch(context.Background(), late, 5*time.Millisecond, "orders-0")
	<-late.answered
	// Output:
	// waits: true
	// completed: 0
	// produce at offset 7: acknowledged
	// completed: 1
	// produce at offset 6: acknowledged
	// waits: false
	// produce at offset 8: REQUEST_TIMED_OUT
}

// Cancelling a client's context ends the operation that it waits for.
func ExamplePurgatory_TryCompleteElseWatch_context() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	connection, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	done := make(chan purgatory.Outcome)
	_, err := p.TryCompleteElseWatch(connection, &waiter{done: done}, time.Minute, "orders-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	hangUp()
	fmt.Println(<-done, p.Len())
	// Output: cancelled 0
}

// A consumer waits at most half a minute for 10 bytes in total from two partitions.
func ExamplePurgatory_CheckAndComplete() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	var mu sync.Mutex
	log := map[string]string{}
	appended := func(partition, record string) {
		mu.Lock()
		log[partition] += record
		mu.Unlock()
		fmt.Println("append:", p.CheckAndComplete(partition), "completed")
	}
	fetch := &waiter{name: "fetch", ready: func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(log["orders-0"])+len(log["orders-1"]) >= 10
	}}
	_, _ = p.TryCompleteElseWatch(context.Background(), fetch, 30*time.Second, "orders-0", "orders-1")

	appended("orders-0", "pear")
	appended("orders-1", "pineapple")
	appended("orders-1", "fig")
	// Output:
	// append: 0 completed
	// fetch completed
	// append: 1 completed
	// append: 0 completed
}

// A consumer group holds its lock while a member joins. The waiting join also takes that lock,
// so its check must not run here: a worker runs it.
func ExamplePurgatory_CheckAndCompleteLater() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	var group sync.Mutex
	members := 1
	done := make(chan purgatory.Outcome)
	join := &waiter{done: done, ready: func() bool {
		group.Lock()
		defer group.Unlock()
		return members == 2
	}}
	_, _ = p.TryCompleteElseWatch(context.Background(), join, time.Minute, "group")

	group.Lock()
	members++
	err := p.CheckAndCompleteLater("group")
	group.Unlock()
	fmt.Println(<-done, err)
	// Output: completed <nil>
}

var errMoved = errors.New("the partition has moved")

// When a partition moves to another broker, all requests that wait on it here are cancelled.
func ExamplePurgatory_CancelForKey() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{name: "first", says: true}, time.Minute, "orders-0")
	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{name: "second"}, time.Minute, "orders-1", "orders-0")
	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{name: "third"}, purgatory.NoTimeout, "orders-1")
	fmt.Println(p.CancelForKey("orders-0", errMoved))
	fmt.Println(p.CancelForKey("orders-1", errMoved))
	// Output:
	// first cancelled: the partition has moved
	// second cancelled
	// 2
	// third cancelled
	// 1
}

func ExamplePending_ForceComplete() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "join"}, time.Minute, "group")
	fmt.Println(h.ForceComplete()) // without a check
	fmt.Println(h.ForceComplete())
	// Output:
	// join completed
	// true
	// false
}

func ExamplePending_Cancel() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "poll"}, time.Minute, "inbox")
	fmt.Println(h.Cancel(nil))
	fmt.Println(h.Cancel(nil))
	fmt.Println(p.CheckAndComplete("inbox"))
	// Output:
	// poll cancelled
	// true
	// false
	// 0
}

// A poll that times out has an answer of its own: there is no mail.
func ExampleOutcome() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	done := make(chan purgatory.Outcome, 1)
	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{done: done}, 5*time.Millisecond, "inbox")
	switch o := <-done; o {
	case purgatory.Completed:
		fmt.Println("there is mail")
	case purgatory.Expired:
		fmt.Println("no mail")
	default:
		fmt.Println("try elsewhere:", o)
	}
	// Output: no mail
}

func ExamplePurgatory_Watched() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	quiet := func() *waiter { return &waiter{done: make(chan purgatory.Outcome, 1)} }
	_, _ = p.TryCompleteElseWatch(context.Background(), quiet(), time.Minute, "a", "b", "c")
	h, _ := p.TryCompleteElseWatch(context.Background(), quiet(), time.Minute, "b", "c", "b")
	fmt.Println("watched:", p.Watched())
	h.Cancel(nil)
	fmt.Println("watched:", p.Watched())
	// Output:
	// watched: 5
	// watched: 3
}

func ExamplePurgatory_Len() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "poll"}, time.Minute, "a", "b", "c")
	fmt.Println("delayed:", p.Len())
	h.ForceComplete()
	fmt.Println("delayed:", p.Len())
	// Output:
	// delayed: 1
	// poll completed
	// delayed: 0
}

func ExamplePurgatory_KeyCount() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "poll"}, time.Minute, "a", "b")
	fmt.Println("keys:", p.KeyCount())
	h.Cancel(nil)
	fmt.Println("keys:", p.KeyCount()) // a key without watchers is removed
	// Output:
	// keys: 2
	// poll cancelled
	// keys: 0
}

func ExamplePurgatory_Stats() {
	p := start(purgatory.Options{OnPanic: func(x purgatory.Panic) { fmt.Println("panic:", x.Value) }})
	defer p.Shutdown(context.Background())

	now := &waiter{name: "now", ready: func() bool { return true }}
	_, _ = p.TryCompleteElseWatch(context.Background(), now, time.Minute, "a")
	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "never mind"}, time.Minute, "a")
	h.Cancel(nil)
	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{name: "broken", ready: func() bool { panic("no such partition") }}, time.Minute, "a")
	st := p.Stats()
	fmt.Println(st.Pending, st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed)
	// Output:
	// now completed
	// never mind cancelled
	// panic: no such partition
	// broken failed
	// 0 1 0 1 0 1
}

// A shutdown answers all pending requests.
func ExamplePurgatory_Shutdown() {
	p := start(purgatory.Options{})
	_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{name: "poll"}, time.Minute, "inbox")

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(p.Shutdown(ctx))
	_, err := p.TryCompleteElseWatch(context.Background(), &waiter{name: "late"}, time.Minute, "inbox")
	fmt.Println(err)
	// Output:
	// poll closed
	// <nil>
	// purgatory: closed
}

// A handler blocks its goroutine until a condition holds, or learns from the error why it did
// not.
func ExamplePurgatory_Await() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	var mail atomic.Int32
	wait := func(timeout time.Duration) error {
		return p.Await(context.Background(), timeout, func() bool { return mail.Load() > 0 }, "inbox")
	}
	fmt.Println(errors.Is(wait(time.Millisecond), context.DeadlineExceeded))
	go func() {
		mail.Add(1)
		p.CheckAndComplete("inbox")
	}()
	fmt.Println(wait(time.Minute))
	// Output:
	// true
	// <nil>
}

// Several purgatories run their timeouts on one clock.
func ExampleNewClock() {
	clock, err := purgatory.NewClock(purgatory.ClockOptions{Name: "requests"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fetches, produces := start(purgatory.Options{Clock: clock}), start(purgatory.Options{Clock: clock})
	_, _ = fetches.TryCompleteElseWatch(context.Background(), &waiter{name: "fetch"}, time.Minute, "orders-0")
	_ = produces.Shutdown(context.Background())
	_ = fetches.Shutdown(context.Background())
	fmt.Println(clock.Shutdown(context.Background()))
	// Output:
	// fetch closed
	// <nil>
}

// All lists the pending operations.
func ExamplePurgatory_All() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	h, _ := p.TryCompleteElseWatch(context.Background(), &waiter{name: "fetch"}, time.Minute, "orders-0", "orders-1")
	for w := range p.All() {
		fmt.Println(w.Keys(), w.Age < time.Minute, w.Pending == h)
	}
	fmt.Println(p.Watching("orders-1"))
	// Output:
	// [orders-0 orders-1] true true
	// 1
	// fetch closed
}
