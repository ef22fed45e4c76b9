package calls_test

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/calls"
)

// All lists the pending calls, for diagnosis.
func ExampleTable_All() {
	table, err := calls.New[int, string](calls.Options{})
	if err != nil {
		panic(err)
	}
	defer table.Close()
	_ = table.Go(7, time.Minute, func() error { return nil }, func(string, error) {})
	for w := range table.All() {
		fmt.Println(w.ID, w.Age < time.Minute, !w.Deadline.IsZero())
	}
	// Output: 7 true true
}
