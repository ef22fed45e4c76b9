package timingwheel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Levels shows where the timers are: here, beyond the lowest level.
func ExampleWheel_Levels() {
	w, err := timingwheel.New(func(int) {}, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer w.Shutdown(context.Background(), timingwheel.Discard)
	for id := range 3 {
		_, _ = w.Schedule(id, time.Hour)
	}
	for _, level := range w.Levels() {
		fmt.Println(level.Pending, "timers in buckets of", level.Span)
	}
	// Output:
	// 0 timers in buckets of 500µs
	// 3 timers in buckets of 1.024s
}
