package purgatory

import "sync/atomic"

// state is where an operation stands: two flags, an outcome, and the generation
// of its record, in one word.
//
//	running   somebody owns the operation: registers, checks or ends it
//	again     somebody found it running, and wants one more check
//	outcome   decided; 0: not yet
//	gen       which of the operations that the record ever was; the zero
//	          record was none. 56 bits do not wrap.
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
//
// Invariant: a free record is decided, until begin (or new, of generation 0). Every transition is of the
// word as it was read, with its generation, so one that was meant for an operation
// of the past fails.
type state struct{ word atomic.Uint64 }

const (
	running      = 1 << 0
	again        = 1 << 1
	outcomeShift = 2
	genShift     = 8
)

// outcomeOf is the outcome in a word.
func outcomeOf(w uint64) Outcome {
	return Outcome(w >> outcomeShift & (1<<(genShift-outcomeShift) - 1))
}

// begin makes the state of a new operation, that of one that is owned already.
func (s *state) begin() { s.word.Store((s.generation()+1)<<genShift | running) }

func (s *state) generation() uint64 { return s.word.Load() >> genShift }

// acquire asks for a check. True: the caller owns the operation and runs it.
// False: the owner will, or the operation is ending, or of the past.
func (s *state) acquire(gen uint64) bool {
	for {
		w := s.word.Load()
		switch {
		case w>>genShift != gen || outcomeOf(w) != 0:
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
func (s *state) decide(gen uint64, o Outcome) (won, mine bool) {
	for {
		w := s.word.Load()
		if w>>genShift != gen || outcomeOf(w) != 0 {
			return false, false
		}
		if s.word.CompareAndSwap(w, w&^again|running|uint64(o)<<outcomeShift) {
			return true, w&running == 0
		}
	}
}

// own is decide, by the owner.
func (s *state) own(o Outcome) (won bool) {
	won, _ = s.decide(s.generation(), o)
	return won
}

// decided says whether there is an outcome; the owner asks.
func (s *state) decided() bool { return outcomeOf(s.word.Load()) != 0 }

// waits says whether an operation has no outcome yet; anybody asks.
func (s *state) waits(gen uint64) bool {
	w := s.word.Load()
	return w>>genShift == gen && outcomeOf(w) == 0
}

// clear forgets that somebody asked for a check: the owner is about to run one.
func (s *state) clear() { s.word.And(^uint64(again)) }

// rest is settle where nothing was asked for and nothing decided; false: it is
// not so, and settle has to see to it.
func (s *state) rest(gen uint64) bool {
	return s.word.CompareAndSwap(gen<<genShift|running, gen<<genShift)
}

// settle is the owner's way out after a check. o != 0: an outcome is decided,
// the caller ends the operation. look: it is to check once more. Otherwise the
// caller does not own the operation any more.
func (s *state) settle() (o Outcome, look bool) {
	for {
		w := s.word.Load()
		if o := outcomeOf(w); o != 0 {
			return o, false
		}
		if s.word.CompareAndSwap(w, w&^(running|again)|w&again>>1) {
			return 0, w&again != 0
		}
	}
}
