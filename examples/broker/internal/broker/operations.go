package broker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// operationKind is what a broker holds requests for. Each kind has a purgatory
// of its own, so that one kind's crowd is no other's, and its own figures here.
type operationKind uint8

const (
	produceOperation operationKind = iota
	fetchOperation
	replicaFetchOperation // a follower's, which goes on and on
	joinOperation
	syncOperation
	heartbeatOperation
	deleteRecordsOperation
	topicsOperation

	operationKinds
)

// Kinds lists them by name.
func Kinds() (names []string) {
	for k := range operationKinds {
		names = append(names, k.String())
	}
	return names
}

func (k operationKind) String() string {
	return [...]string{"produce", "fetch", "replica_fetch", "join", "sync", "heartbeat", "delete_records", "topics"}[k]
}

// operations counts those of one kind: by outcome, and how long they waited.
type operations struct {
	ended  [purgatory.Failed + 1]atomic.Uint64
	waited metric.Histogram
}

// ended counts one operation of a kind, how it ended, and how long it waited.
func (m *metrics) ended(kind operationKind, outcome purgatory.Outcome, waited time.Duration) {
	o := &m.operations[kind]
	o.ended[outcome].Add(1)
	o.waited.Add(waited)
}

// groupOperationEnded is what a coordinator calls.
func (s *Server) groupOperationEnded(what group.Operation, outcome purgatory.Outcome, waited time.Duration) {
	s.metrics.ended([...]operationKind{group.Join: joinOperation, group.Sync: syncOperation, group.Heartbeat: heartbeatOperation}[what], outcome, waited)
}

// settle ends a parked request: it is answered, or, if its client has gone or a
// check has panicked, it is not, and the connection ends.
func (s *Server) settle(kind operationKind, outcome purgatory.Outcome, arrived time.Time, r *wire.Reply, answer func()) {
	s.metrics.ended(kind, outcome, time.Since(arrived))
	switch outcome {
	case purgatory.Completed, purgatory.Expired, purgatory.Closed:
		answer()
	case purgatory.Cancelled, purgatory.Failed:
		r.Drop()
	}
}

// notParked reports whether a purgatory has refused a request, which then has to be
// answered at once: for want of room, or because the broker stops.
func (s *Server) notParked(err error) bool {
	switch {
	case err == nil: // answered, or parked and answered later
		return false
	case errors.Is(err, purgatory.ErrFull):
		s.metrics.overload.Add(1)
	case !errors.Is(err, purgatory.ErrClosed):
		panic(err) // the keys and the operation are ours: a bug
	}
	return true
}
