package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// Sessions that end after some idle time.
func Example() {
	ended := make(chan string)
	sessions, err := keyed.New(func(id, user string) {
		ended <- id + " of " + user
	}, timingwheel.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sessions.Shutdown(context.Background(), timingwheel.Discard)

	_ = sessions.Set("s1", "ada", 10*time.Millisecond)
	_ = sessions.Set("s2", "bob", time.Minute)
	_ = sessions.Touch("s2", time.Hour) // a request of bob
	fmt.Println(<-ended)
	if err := sessions.Touch("s1", time.Hour); errors.Is(err, keyed.ErrAbsent) {
		fmt.Println("ada has to log in again")
	}
	fmt.Println(sessions.Get("s2"))
	// Output:
	// s1 of ada
	// ada has to log in again
	// bob true
}

func ExampleNew() {
	_, err := keyed.New[string, int](nil, timingwheel.Options{})
	fmt.Println(err)
	// Output: keyed: the expiry function is nil
}

func ExampleTable_Set() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	_ = table.Set("k", 2, time.Minute) // another value, and sooner
	fmt.Println(table.Get("k"))
	fmt.Println(table.Len())
	// Output:
	// 2 true
	// 1
}

func ExampleTable_SetAt() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.SetAt("k", 1, time.Now().AddDate(1, 0, 0))
	fmt.Println(table.Get("k"))
	// Output: 1 true
}

// One of several callers gets the lock.
func ExampleTable_SetIfAbsent() {
	locks, _ := keyed.New(func(string, string) {}, timingwheel.Options{})
	defer locks.Shutdown(context.Background(), timingwheel.Discard)
	for _, name := range []string{"ada", "bob"} {
		holder, got, err := locks.SetIfAbsent("door", name, time.Minute)
		fmt.Println(holder, got, err)
	}
	// Output:
	// ada true <nil>
	// ada false <nil>
}

func ExampleTable_Reset() {
	expired := make(chan string)
	table, _ := keyed.New(func(key string, _ int) { expired <- key }, timingwheel.Options{})
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Reset("k", time.Millisecond)) // shortens the deadline
	fmt.Println(<-expired)
	fmt.Println(table.Reset("k", time.Hour))
	// Output:
	// <nil>
	// k
	// keyed: no such key
}

func ExampleTable_Touch() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Minute)
	fmt.Println(table.Touch("k", time.Hour))
	fmt.Println(table.Touch("k", 0)) // a later deadline stays
	fmt.Println(table.Touch("none", time.Hour))
	// Output:
	// <nil>
	// <nil>
	// keyed: no such key
}

func ExampleTable_Remove() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Remove("k"))
	fmt.Println(table.Remove("k"))
	// Output:
	// 1 true
	// 0 false
}

func ExampleTable_Get() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Get("k"))
	fmt.Println(table.Get("none"))
	// Output:
	// 1 true
	// 0 false
}

func ExampleTable_Deadline() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	deadline, ok := table.Deadline("k")
	fmt.Println(time.Until(deadline).Round(time.Minute), ok)
	// Output: 1h0m0s true
}

func ExampleTable_Len() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	fmt.Println(table.Len())
	// Output: 2
}

func ExampleTable_Stats() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	table.Remove("a")
	st := table.Stats()
	fmt.Println(st.Pending, st.Scheduled, st.Stopped)
	// Output: 1 2 1
}

func ExampleTable_All() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	sum := 0
	for key, value := range table.All() {
		sum += value
		_ = table.Touch(key, 2*time.Hour)
	}
	fmt.Println(sum)
	// Output: 3
}

func ExampleTable_Drain() {
	table := newTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	sum := 0
	fmt.Println(table.Drain(func(_ string, value int) { sum += value }))
	fmt.Println(sum, table.Len())
	// Output:
	// 2
	// 3 0
}

// With Await, the keys in the table stay, and new ones are refused.
func ExampleTable_Close() {
	table := newTable()
	_ = table.Set("k", 1, time.Hour)
	_, err := table.Close(timingwheel.Await)
	fmt.Println(err)
	fmt.Println(table.Touch("k", 2*time.Hour))
	fmt.Println(table.Touch("none", time.Hour))
	fmt.Println(table.Set("new", 2, time.Hour))
	_, _ = table.Close(timingwheel.Discard) // does not wait any longer
	// Output:
	// <nil>
	// <nil>
	// timingwheel: closed
	// timingwheel: closed
}

func ExampleTable_Shutdown() {
	table := newTable()
	_ = table.Set("later", 2, 2*time.Hour)
	_ = table.Set("sooner", 1, time.Hour)
	left, err := table.Shutdown(context.Background(), timingwheel.Return)
	for _, d := range left {
		fmt.Println(d.Value.Key, d.Value.Value, time.Until(d.Deadline).Round(time.Minute))
	}
	fmt.Println(err)
	// Output:
	// sooner 1 1h0m0s
	// later 2 2h0m0s
	// <nil>
}

func newTable() *keyed.Table[string, int] {
	table, err := keyed.New(func(string, int) {}, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	return table
}
