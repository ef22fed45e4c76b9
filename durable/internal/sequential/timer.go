// Package sequential models the timer of one key under sequential calls. Tests check the answers
// of engines with it. It has no notion of time: leases do not expire.
package sequential

import "github.com/seed-782fa212/limbo/durable/store"

// Timer is the state of a key. The methods return the answer to a call and the state after it.
type Timer struct {
	State     store.State // 0: the key is absent
	ID        store.ID
	Due       store.Millis // 0: a time in the past that the calls do not show
	Attempts  int
	Cancelled bool

	Successor    store.ID // the zero ID: there is none
	SuccessorDue store.Millis
}

// Schedule schedules e.
func (t Timer) Schedule(e store.Entry) (store.ReceiptKind, Timer) {
	switch {
	case e.IfAbsent && t.State != 0:
		return store.Exists, t
	case t.State == store.Leased:
		t.Successor, t.SuccessorDue = e.ID, e.At
		return store.Succeeds, t
	}
	kind := map[store.State]store.ReceiptKind{0: store.Created, store.Waiting: store.Replaced, store.Dead: store.ReplacedDead}[t.State]
	return kind, Timer{State: store.Waiting, ID: e.ID, Due: e.At}
}

// Cancel cancels the timer.
func (t Timer) Cancel() (store.CancelResult, Timer) {
	switch t.State {
	case store.Waiting:
		return store.Cancelled, Timer{}
	case store.Leased:
		t.Cancelled, t.Successor, t.SuccessorDue = true, store.ID{}, 0
		return store.Running, t
	}
	return store.NotFound, t
}

// Reschedule gives the timer another due time, if it is waiting.
func (t Timer) Reschedule(at store.Millis) Timer {
	if t.State == store.Waiting {
		t.Due = at
	}
	return t
}

// Claim leases the timer, which must be waiting.
func (t Timer) Claim() Timer {
	t.State = store.Leased
	t.Attempts++
	return t
}

// End ends the run of the timer, which must be leased, for its holder.
func (t Timer) End(kind store.OutcomeKind) (store.EndResult, Timer) {
	switch {
	case t.Cancelled:
		return store.EndCancelled, t.successor()
	case t.Successor != store.ID{}:
		return store.EndReplaced, t.successor()
	}
	switch kind {
	case store.Done:
		return store.Ended, Timer{}
	case store.DeadLetter:
		t.State, t.Due = store.Dead, 0
		return store.Ended, t
	case store.Snooze:
		t.Attempts--
		t.Due = 0
	case store.Retry:
		t.Due = 0
	case store.Release:
		t.Attempts--
	}
	t.State = store.Waiting
	return store.Ended, t
}

// successor returns the timer that waits once this one is removed.
func (t Timer) successor() Timer {
	if t.Successor == (store.ID{}) {
		return Timer{}
	}
	return Timer{State: store.Waiting, ID: t.Successor, Due: t.SuccessorDue}
}

// Requeue makes a dead letter wait again.
func (t Timer) Requeue() (store.RequeueResult, Timer) {
	switch t.State {
	case 0:
		return store.RequeueAbsent, t
	case store.Dead:
		t.State, t.Due, t.Attempts = store.Waiting, 0, 0
		return store.Requeued, t
	}
	return store.RequeueExists, t
}

// Purge removes a dead letter, and returns how many there were.
func (t Timer) Purge() (int, Timer) {
	if t.State == store.Dead {
		return 1, Timer{}
	}
	return 0, t
}
