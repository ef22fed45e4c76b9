package main

import "time"

// Timers is what every rival can do, and all that a workload sees of one. H is
// its handle, kept by value, as its users keep it.
//
// A workload is a function with H as its type parameter that calls Timers
// through the interface. So it is compiled once for each shape of handle, a
// handle is never boxed, and each call costs every rival the same one step
// through an interface table.
type Timers[H any] interface {
	// Start has the common callback called with 0 after d. No identity is
	// asked for, so that no rival need make a closure for one.
	Start(d time.Duration) H
	// StartID has it called with id: rivals that hold functions make a
	// closure, as their users do.
	StartID(id uint64, d time.Duration) H
	// Stop says whether the callback will never be called, as far as the
	// rival can say.
	Stop(h H) bool
	// Reset gives a pending timer a new delay, the way the rival's users do,
	// and returns its handle, which may be another one.
	Reset(h H, d time.Duration) (H, bool)
	// Close ends its goroutines.
	Close()
}

// opener makes a rival whose timers call fire.
type opener[H any] func(fire func(id uint64)) (Timers[H], error)

// settler is for rivals that take timers over some time after they were
// started: Settle waits until they have.
type settler interface{ Settle() }

func settle[H any](t Timers[H]) {
	if s, ok := t.(settler); ok {
		s.Settle()
	}
}

// must is for a rival that refuses a timer, which none is set up to do.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
