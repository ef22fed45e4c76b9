package calls_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-782fa212/limbo/calls"
)

// A client with requests in flight on one connection.
func Example() {
	table, err := calls.New[uint64, string](calls.Options{})
	if err != nil {
		panic(err)
	}
	requests := make(chan uint64)

	// The connection: its other end answers requests, in any order, until it is lost.
	conn := table.Group()
	go func() {
		first, second := <-requests, <-requests
		conn.Reply(second, fmt.Sprint("reply to ", second))
		conn.Reply(first, fmt.Sprint("reply to ", first))
		<-requests
		conn.CloseWithError(io.ErrUnexpectedEOF)
	}()

	call := func(id uint64) (string, error) {
		return conn.Do(context.Background(), id, time.Minute, func() error {
			requests <- id
			return nil
		})
	}
	done := make(chan string)
	go func() {
		reply, _ := call(1)
		done <- reply
	}()
	reply, _ := call(2)
	fmt.Println(reply)
	fmt.Println(<-done)

	_, err = call(3)
	fmt.Println(err)
	_, err = call(4)
	fmt.Println(err, errors.Is(err, calls.ErrClosed))
	fmt.Println(table.Stats().Pending, table.Shutdown(context.Background()))
	// Output:
	// reply to 2
	// reply to 1
	// unexpected EOF
	// unexpected EOF false
	// 0 <nil>
}

// Calls without a goroutine for each.
func ExampleTable_Go() {
	table, err := calls.New[int, string](calls.Options{})
	if err != nil {
		panic(err)
	}
	done := func(reply string, err error) { fmt.Printf("%q, %v\n", reply, err) }
	sent := func() error { return nil }
	_ = table.Go(1, time.Minute, sent, done)
	_ = table.Go(2, time.Minute, sent, done)
	fmt.Println(table.Go(2, time.Minute, sent, done))

	fmt.Println(table.Reply(1, "one"), table.Reply(1, "again"))
	table.Close()
	// Output:
	// calls: a call with this id is already pending
	// "one", <nil>
	// true false
	// "", calls: closed
}
