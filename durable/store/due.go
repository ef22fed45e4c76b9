package store

import "fmt"

const (
	// MaxEdges is the maximum number of edges of one CountDue.
	MaxEdges = 200
	// MaxCounted is the maximum number of timers that an engine reads for one CountDue, if it has
	// to read them to count.
	MaxCounted = 100_000
)

// DueCounts answers a CountDue.
type DueCounts struct {
	Counts []int // Counts[i] waiting timers are due at edges[i] or later, and before edges[i+1]
	// Through is 0 if all are counted. Otherwise exactly the timers due before Through are.
	Through Millis
}

// CheckEdges refuses edges that are out of bounds.
func CheckEdges(edges []Millis) error {
	if n := len(edges); n < 2 || n > MaxEdges {
		return fmt.Errorf("durable: there are %d edges, must be 2 to %d", n, MaxEdges)
	}
	least := Millis(0)
	for i, at := range edges {
		if at < least || at > MaxMillis {
			return fmt.Errorf("durable: edges[%d] is %d ms after 1970, must be %d to %d", i, int64(at), int64(least), int64(MaxMillis))
		}
		least = at
	}
	return nil
}
