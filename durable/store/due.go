package store

import "fmt"

const (
	// MaxEdges is how many edges one CountDue has at most.
	MaxEdges = 200
	// MaxCounted is how many timers an engine that has to read them counts for one CountDue.
	MaxCounted = 100_000
)

// DueCounts answers a CountDue.
type DueCounts struct {
	Counts []int // Counts[i] waiting timers are due at edges[i] or later, and before edges[i+1]
	// Through is 0 if all are counted. Otherwise exactly the timers due before it are.
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
