package broker

import (
	"errors"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// settle ends a parked request: it is answered, or, if its client has gone or a
// check has panicked, it is not, and the connection ends.
func settle(outcome purgatory.Outcome, r *wire.Reply, answer func()) {
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
