package metric

import (
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// Operation is a kind of what a broker holds requests for.
type Operation uint8

// Each has a purgatory or a table of its own, so that one kind's crowd is no other's.
const (
	Produce Operation = iota
	Fetch
	ReplicaFetch // a follower's, which goes on and on
	Join
	Sync
	Heartbeat
	DeleteRecords
	Topics

	kinds
)

func (k Operation) String() string {
	return [...]string{"produce", "fetch", "replica_fetch", "join", "sync", "heartbeat", "delete_records", "topics"}[k]
}

// Kinds returns the names of all.
func Kinds() (names []string) {
	for k := range kinds {
		names = append(names, k.String())
	}
	return names
}

// Operations counts those that have ended.
type Operations [kinds]struct {
	ended  [purgatory.Failed + 1]atomic.Uint64
	waited Histogram
}

// End counts one operation, how it ended, and how long it waited.
func (o *Operations) End(kind Operation, outcome purgatory.Outcome, waited time.Duration) {
	o[kind].ended[outcome].Add(1)
	o[kind].waited.Add(waited)
}

// Ended returns how many of a kind have ended, by whatever outcome.
func (o *Operations) Ended(kind Operation) (n uint64) {
	for outcome := range o[kind].ended {
		n += o[kind].ended[outcome].Load()
	}
	return n
}

// addTo adds the counts to sums by kind.
func (o *Operations) addTo(sums map[string]OperationStats) {
	for k := range kinds {
		sum := sums[k.String()]
		for outcome := range sum.Ended {
			sum.Ended[outcome] += o[k].ended[outcome].Load()
		}
		sum.Waited.Add(o[k].waited.Counts())
		sums[k.String()] = sum
	}
}
