package broker

import "sync/atomic"

// metrics counts what the table and the tests want to know. All fields are
// written by whoever does the thing, and only ever grow.
type metrics struct {
	panics atomic.Uint64 // bugs: recovered in an operation

	batches [8]atomic.Uint64 // appended, by codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
	records atomic.Uint64    // appended

	woken    atomic.Uint64 // parked fetches that an append completed
	overload atomic.Uint64 // requests answered at once because a purgatory was full

	operations    [operationKinds]operations
	lostCommitted atomic.Int64 // records cut off a log below its high watermark: there must be none
}
