package purgatory

import "sync/atomic"

// state is where an operation stands: two flags and an outcome, in one word.
//
//	running   somebody owns the operation: registers, checks or ends it
//	again     somebody found it running, and wants one more check
//	outcome   decided; 0: not yet
//
// The transitions, each one compare-and-swap:
//
//	          acquire             settle: nothing asked
//	idle ───────────────▶ running ───────────────▶ idle
//	          acquire              settle: look again
//	running ───────────────▶ running+again ───────────────▶ running
//	          decide
//	idle ───────────────▶ running+outcome              (decider ends it)
//	          decide               settle
//	running ───────────────▶ running+outcome           (owner ends it)
//
// running is never cleared once an outcome is decided, so:
//
// Invariant: the first decide wins, and exactly one goroutine finds itself the
// owner of a decided operation; it calls Complete, once (P1), when no check
// runs or will ever run again (P3).
//
// Invariant: whoever fails to acquire a running operation has left again set,
// or found an outcome. The owner's step to idle fails while again is set, so a
// check begins after every acquire (P2). That is what Kafka's first version
// missed:
//
//  1. T1 checks, and sees "no".
//  2. T2 makes it "yes", tries the operation's lock, fails, and leaves.
//  3. T1 unlocks. Nobody looks again before the timeout (KAFKA-6653).
//
// Here step 2 leaves again behind, and step 3 does not succeed with it set.
type state struct{ word atomic.Uint32 }

const (
	running      = 1 << 0
	again        = 1 << 1
	outcomeShift = 2
)

// begin makes the state of a new operation, that of one that is owned already.
func (s *state) begin() { s.word.Store(running) }

// acquire asks for a check. True: the caller owns the operation and runs it.
// False: the owner will, or the operation is ending.
func (s *state) acquire() bool {
	for {
		w := s.word.Load()
		switch {
		case w>>outcomeShift != 0:
			return false
		case w&running == 0:
			if s.word.CompareAndSwap(w, w|running) {
				return true
			}
		case w&again != 0:
			// Somebody asked already, and that check has not begun yet: again
			// is cleared before it does. Written all the same, so that what
			// the caller did before is visible to that check by Go's memory
			// model, which gives a mere read no such order.
			if s.word.CompareAndSwap(w, w) {
				return false
			}
		default:
			if s.word.CompareAndSwap(w, w|again) {
				return false
			}
		}
	}
}

// decide sets the outcome if there is none. won: this call did. mine: and the
// caller owns the operation now, and ends it; otherwise its owner does.
func (s *state) decide(o Outcome) (won, mine bool) {
	for {
		w := s.word.Load()
		if w>>outcomeShift != 0 {
			return false, false
		}
		if s.word.CompareAndSwap(w, w&^again|running|uint32(o)<<outcomeShift) {
			return true, w&running == 0
		}
	}
}

// decided says whether there is an outcome.
func (s *state) decided() bool { return s.word.Load()>>outcomeShift != 0 }

// clear forgets that somebody asked for a check: the owner is about to run one.
func (s *state) clear() { s.word.And(^uint32(again)) }

// rest is settle where nothing was asked for and nothing decided; false: it is
// not so, and settle has to see to it.
func (s *state) rest() bool { return s.word.CompareAndSwap(running, 0) }

// settle is the owner's way out after a check. o != 0: an outcome is decided,
// the caller ends the operation. look: it is to check once more. Otherwise the
// caller does not own the operation any more.
func (s *state) settle() (o Outcome, look bool) {
	for {
		w := s.word.Load()
		if w>>outcomeShift != 0 {
			return Outcome(w >> outcomeShift), false
		}
		if s.word.CompareAndSwap(w, w&^(running|again)|w&again>>1) {
			return 0, w&again != 0
		}
	}
}
