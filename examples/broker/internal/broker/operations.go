package broker

import (
	"errors"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// groupOperationEnded is what a coordinator calls.
func (s *Server) groupOperationEnded(what group.Operation, outcome purgatory.Outcome, waited time.Duration) {
	s.metrics.Operations.End([...]metric.Operation{group.Join: metric.Join, group.Sync: metric.Sync, group.Heartbeat: metric.Heartbeat}[what], outcome, waited)
}

// settle ends a parked request: it is answered, or, if its client has gone or a
// check has panicked, it is not, and the connection ends.
func (s *Server) settle(kind metric.Operation, outcome purgatory.Outcome, arrived time.Time, r *wire.Reply, answer func()) {
	s.metrics.Operations.End(kind, outcome, time.Since(arrived))
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
		s.metrics.Overload.Add(1)
	case !errors.Is(err, purgatory.ErrClosed):
		panic(err) // the keys and the operation are ours: a bug
	}
	return true
}
