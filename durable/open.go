package durable

import (
	"github.com/seed-782fa212/limbo/durable/pebblestore"
)

// Open returns Timers on the embedded engine, which keeps them in the folder dir, and
// makes that if it is not there. One process at a time has a folder open: another, or
// a second Open, is an error. Close closes it.
//
// The answer to each call that changes something follows the fsync of its commit. What
// ran when the process before died, or was closed, runs again at once. With a
// folder that has another number of shards than Options.Shards, the error is
// [ErrShards]; with 0 there, it has the number that it has. An option out of range is an
// error that names it.
func Open(dir string, o Options) (*Timers, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{
		Shards: o.Shards, Limits: o.Limits, Logger: o.Logger, CallTimeout: o.CallTimeout,
	})
	if err != nil {
		return nil, err
	}
	return newTimers(s, o, true)
}
