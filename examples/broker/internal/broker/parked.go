package broker

import (
	"errors"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// completeParked completes a parked request: it answers the request, or ends the connection without
// an answer if the client has disconnected or a check has panicked.
func completeParked(outcome purgatory.Outcome, r *wire.Reply, answer func()) {
	switch outcome {
	case purgatory.Completed, purgatory.Expired, purgatory.Closed:
		answer()
	case purgatory.Cancelled, purgatory.Failed:
		r.Drop()
	}
}

// notParked reports whether a purgatory has refused a request, because it is full or because the
// broker is stopping. The caller must then answer at once.
func (s *Server) notParked(err error) bool {
	switch {
	case err == nil: // answered, or parked to be answered later
		return false
	case errors.Is(err, purgatory.ErrFull):
		s.metrics.Overload.Add(1)
	case !errors.Is(err, purgatory.ErrClosed):
		panic(err) // a bug: this package makes the keys and the operation
	}
	return true
}
