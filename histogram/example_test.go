package histogram_test

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// Quantiles are rounded up to the bound of their class.
func ExampleDurations() {
	var waited histogram.Durations
	for _, ms := range []time.Duration{1, 2, 3, 900} {
		waited.Add(ms * time.Millisecond)
	}
	fmt.Println(waited.Count, "waited", waited.Mean(), "on average")
	fmt.Println("half of them up to", waited.Quantile(0.5))
	fmt.Println("all of them up to", waited.Quantile(1))
	// Output:
	// 4 waited 226.5ms on average
	// half of them up to 3.90625ms
	// all of them up to 1s
}
