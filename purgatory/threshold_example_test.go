package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// watermarks are the high watermarks of partitions.
type watermarks map[string]*atomic.Int64

func (w watermarks) of(partition string) int64 { return w[partition].Load() }

// ack answers a produce.
type ack struct {
	offset   int64
	answered chan bool
}

func (a *ack) Complete(o purgatory.Outcome, _ error) {
	switch o {
	case purgatory.Completed:
		fmt.Printf("offset %d: acknowledged\n", a.offset)
	case purgatory.Expired:
		fmt.Printf("offset %d: REQUEST_TIMED_OUT\n", a.offset)
	default:
		fmt.Printf("offset %d: NOT_LEADER_OR_FOLLOWER\n", a.offset)
	}
	close(a.answered)
}

// A produce with acks=all waits until the high watermark of its partition has
// passed its record.
func ExampleThreshold() {
	hw := watermarks{"orders-0": new(atomic.Int64)}
	acks, err := purgatory.NewThreshold(hw.of, purgatory.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer acks.Shutdown(context.Background())
	produce := func(offset int64, timeout time.Duration) *ack {
		a := &ack{offset, make(chan bool)}
		_, err := acks.TryCompleteElseWatch(context.Background(), a, timeout, purgatory.All,
			purgatory.Goal[string, int64]{Key: "orders-0", Number: offset + 1})
		if err != nil {
			fmt.Println(err)
		}
		return a
	}
	for offset := range int64(4) {
		produce(offset, 30*time.Second)
	}

	// The slowest follower now has the first three records.
	hw["orders-0"].Store(3)
	fmt.Println("completed:", acks.Advance("orders-0", 3))

	// A new leader begins lower: completed operations stay completed.
	hw["orders-0"].Store(2)
	fmt.Println("completed:", acks.Advance("orders-0", 2))

	late := produce(4, time.Millisecond)
	<-late.answered
	// Output:
	// offset 0: acknowledged
	// offset 1: acknowledged
	// offset 2: acknowledged
	// completed: 3
	// completed: 0
	// offset 4: REQUEST_TIMED_OUT
	// offset 3: NOT_LEADER_OR_FOLLOWER
}

// A fetch waits for 100 bytes from either of two partitions. A fetch that wants 100 bytes from
// both together reads the logs itself: see Purgatory.CheckAndComplete.
func ExampleThreshold_TryCompleteElseWatch() {
	bytes := watermarks{"orders-0": new(atomic.Int64), "orders-1": new(atomic.Int64)}
	fetches, _ := purgatory.NewThreshold(bytes.of, purgatory.Options{})
	defer fetches.Shutdown(context.Background())

	fetch := &waiter{name: "fetch"}
	_, _ = fetches.TryCompleteElseWatch(context.Background(), fetch, time.Minute, purgatory.Any,
		purgatory.Goal[string, int64]{Key: "orders-0", Number: 100},
		purgatory.Goal[string, int64]{Key: "orders-1", Number: 100})
	fmt.Println("completed:", fetches.Advance("orders-0", bytes["orders-0"].Add(60)))
	fmt.Println("completed:", fetches.Advance("orders-1", bytes["orders-1"].Add(130)))
	// Output:
	// completed: 0
	// fetch completed
	// completed: 1
}

// A rebalance waits for all members of its group to join, at most for the rebalance timeout.
func ExampleThreshold_Await() {
	joined := watermarks{"group": new(atomic.Int64)}
	barrier, _ := purgatory.NewThreshold(joined.of, purgatory.Options{})
	defer barrier.Shutdown(context.Background())

	const members = 3
	for range members {
		go func() { barrier.Advance("group", joined["group"].Add(1)) }()
	}
	all := purgatory.Goal[string, int64]{Key: "group", Number: members}
	fmt.Println(barrier.Await(context.Background(), time.Minute, purgatory.All, all))

	all.Number++ // a member that never joins
	err := barrier.Await(context.Background(), time.Millisecond, purgatory.All, all)
	fmt.Println(err, errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// purgatory: the operation's timeout has passed true
}

// The first of two replicas to answer completes a request.
func ExampleFutures() {
	replies, _ := purgatory.NewFutures[string](purgatory.Options{})
	defer replies.Shutdown(context.Background())

	near, far := replies.Future(), replies.Future()
	go near.Set("from near by", nil)
	err := replies.Await(context.Background(), time.Minute, purgatory.Any, near, far)
	reply, _, _ := near.Result()
	fmt.Println(err, reply)
	// Output: <nil> from near by
}

// A record is written to three replicas, and is committed when two have it.
func ExampleFutures_Quorum() {
	acks, _ := purgatory.NewFutures[string](purgatory.Options{})
	defer acks.Shutdown(context.Background())
	send := func(replica string, err error) *purgatory.Future[string] {
		f := acks.Future()
		go f.Set(replica, err)
		return f
	}

	ok, err := acks.Quorum(context.Background(), time.Minute, 2, send("a", nil), send("b", errMoved), send("c", nil))
	fmt.Println(ok, err)
	ok, err = acks.Quorum(context.Background(), time.Minute, 2, send("a", errMoved), send("b", errMoved), acks.Future())
	fmt.Println(ok, err)
	fmt.Println(errors.Is(err, errMoved))
	// Output:
	// [a c] <nil>
	// [] purgatory: 2 of 3 futures have failed, 2 must not: the partition has moved
	// the partition has moved
	// true
}
