package main

import "time"

// Timers is the interface of every rival, through which workloads use it. H is the rival's
// handle, kept by value, as its users keep it.
//
// A workload is a function with the type parameter H that calls Timers through the interface. So
// it is compiled once for each shape of handle, no handle is boxed, and each call costs every
// rival the same indirection through an interface table.
type Timers[H any] interface {
	// Start calls the common callback with 0 after d. Because all timers have the same id, no
	// rival has to make a closure for each timer.
	Start(d time.Duration) H
	// StartID calls the common callback with id after d. Rivals that hold functions make a
	// closure, as their users do.
	StartID(id uint64, d time.Duration) H
	// Stop reports whether the callback will never be called, as far as the rival knows.
	Stop(h H) bool
	// Reset changes the delay of a pending timer in the way that the rival's users do. It
	// returns the timer's handle, which may be a different one, and reports whether the timer
	// was pending.
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

// must panics on an error. It is for rivals that could refuse a timer, but are not configured
// to.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
