package main

import "time"

// Timers is what every rival can do, and all that a workload knows of it. H is the
// rival's handle, kept by value, as its users keep it.
//
// A workload is a function with H as its type parameter that calls Timers through
// the interface. So it is compiled once for each shape of handle, a handle is never
// boxed, and each call costs every rival the same indirection through an interface
// table.
type Timers[H any] interface {
	// Start calls the common callback with 0 after d. Without an identity, no
	// rival has to make a closure for each timer.
	Start(d time.Duration) H
	// StartID calls it with id. Rivals that hold functions make a closure, as
	// their users do.
	StartID(id uint64, d time.Duration) H
	// Stop reports whether the callback will never be called, as far as the
	// rival knows.
	Stop(h H) bool
	// Reset changes the delay of a pending timer as the rival's users do. It
	// returns the timer's handle, which may be a different one, and reports
	// whether the timer was pending.
	Reset(h H, d time.Duration) (H, bool)
	// Close ends its goroutines.
	Close()
}

// opener opens a rival whose timers call fire.
type opener[H any] func(fire func(id uint64)) (Timers[H], error)

// placer is implemented by rivals that place timers some time after they were started.
// WaitPlaced waits until all are placed.
type placer interface{ WaitPlaced() }

func waitPlaced[H any](t Timers[H]) {
	if p, ok := t.(placer); ok {
		p.WaitPlaced()
	}
}

// must panics on an error. It is for rivals that could refuse a timer, but are not
// configured to.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
