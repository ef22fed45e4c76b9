// Package memstore is an engine in memory, for the tests of programs that use package durable. It
// is opened like every engine:
//
//	engine, err := memstore.New(memstore.Options{})
//	timers, err := durable.New(engine, durable.Options{})
//
// It keeps every promise of the engines except that its timers end with its process. It starts no
// goroutine and waits only for its callers, so in a testing/synctest bubble all promises of
// package durable can be tested on virtual time.
//
// It is made to be correct, not fast: most calls take time proportional to the size of their
// shard, about a millisecond with 10,000 timers.
package memstore

import (
	"cmp"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Options configure a store. The zero value is a good default.
type Options struct {
	// Shards is the number of shards. Default 4; 1 to 1,024.
	Shards int

	// Limits bound the contents of each shard.
	Limits store.Limits

	// Now is the engine's clock, which alone decides which timers are due. It must be safe for
	// concurrent use. Default: time.Now.
	Now func() time.Time
}

const defaultShards = 4

// New returns an empty store. An option out of range is an error that names it.
func New(o Options) (store.Store, error) {
	s, err := oracle.New(cmp.Or(o.Shards, defaultShards), o.Limits, o.Now)
	if err != nil {
		return nil, err
	}
	return s, nil
}
