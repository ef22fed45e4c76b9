package main

import (
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// operationKind is what a broker holds requests for. Each kind has a purgatory
// of its own, so that one kind's crowd is no other's, and its own figures here.
type operationKind uint8

const (
	produceOperation operationKind = iota
	fetchOperation
	joinOperation
	syncOperation
	heartbeatOperation
	deleteRecordsOperation
	topicsOperation

	operationKinds
)

func (k operationKind) String() string {
	return [...]string{"produce", "fetch", "join", "sync", "heartbeat", "delete_records", "topics"}[k]
}

// operations counts those of one kind: by outcome, and how long they waited.
type operations struct {
	ended  [purgatory.Failed + 1]atomic.Uint64
	waited histogram
}

// ended counts one operation of a kind, how it ended, and how long it waited.
func (m *metrics) ended(kind operationKind, outcome purgatory.Outcome, waited time.Duration) {
	o := &m.operations[kind]
	o.ended[outcome].Add(1)
	o.waited.add(waited)
}
