package purgatory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// Purgatory holds operations that wait on keys of type K. Make one with [New];
// it runs goroutines until it is shut down. All methods are safe for use from
// any goroutine, TryComplete and Complete included.
type Purgatory[K comparable] struct {
	host   // its wheel's zero values: a deferred key to check
	seed   maphash.Seed
	shards []shard[K] // length a power of two

	deferred deferred[K]

	ones, fews, manies sync.Pool // records to be used again
}

// fewKeys is up to how many keys they are compared each with each to find one
// given twice; beyond, a map does.
const fewKeys = 16

// New makes a purgatory. It costs one goroutine while nothing expires. An
// option out of range is an error that names it.
func New[K comparable](o Options) (*Purgatory[K], error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Purgatory[K]{
		seed:   maphash.MakeSeed(),
		shards: make([]shard[K], o.Shards),
	}
	p.owner = p
	if err := p.open(o, p.expire); err != nil {
		return nil, err
	}
	return p, nil
}

// TryCompleteElseWatch checks op, and if it cannot complete watches it on keys
// for at most timeout: until a CheckAndComplete for one of them finds that it
// can, it is cancelled, or its time is up.
//
// If op completes within the call, Complete has been called and the handle is
// zero. Otherwise the handle is that of the waiting operation; it may have
// ended by the time it is returned. A timeout of zero or less expires at once,
// on a worker, if the checks say no; [NoTimeout] never does. A key given twice
// counts once.
//
// op is checked at most twice, whatever the number of keys (P4): before it is
// watched, and after. With the second check nothing is lost between the first
// and the watching (P2): a change either comes before it, and is seen, or its
// CheckAndComplete finds op watched.
//
// An error means that op is not watched and that its Complete is not called:
// no keys, a nil op, a key that is not equal to itself, ErrFull, ErrClosed.
// It allocates nothing once records for as many keys have been used, up to 16;
// constant time for each key.
func (p *Purgatory[K]) TryCompleteElseWatch(op Operation, timeout time.Duration, keys ...K) (Pending, error) {
	return p.TryCompleteElseWatchContext(context.Background(), op, timeout, keys...)
}

// TryCompleteElseWatchContext is TryCompleteElseWatch for an operation that
// also ends, as Cancelled, when ctx is done: that of a connection, so that a
// client which hangs up frees what it waits for (P9). Complete is called on a
// goroutine of its own then; on the caller's, if that is still in this call.
// A context that cannot be cancelled costs nothing; a nil one is an error.
func (p *Purgatory[K]) TryCompleteElseWatchContext(ctx context.Context, op Operation, timeout time.Duration, keys ...K) (Pending, error) {
	if op == nil {
		return Pending{}, errors.New("purgatory: the operation is nil")
	}
	if ctx == nil {
		return Pending{}, errors.New("purgatory: the context is nil")
	}
	if len(keys) == 0 {
		return Pending{}, errors.New("purgatory: the operation has no keys, must have at least 1")
	}
	for i, k := range keys {
		if !reflexive(k) {
			return Pending{}, fmt.Errorf("purgatory: keys[%d] is %v, must be equal to itself", i, k)
		}
	}
	if p.end.begun.Load() {
		return Pending{}, ErrClosed
	}
	if p.first(op) {
		return Pending{}, nil
	}
	if !p.reserve() {
		return Pending{}, ErrFull
	}
	r, w, places := p.newRecord(len(keys))
	r.begin(&p.host, w, op, timeout)
	if !p.watch(r, places, keys) {
		return r.withdraw()
	}
	return r.entered(ctx)
}

// CheckAndComplete checks the operations that watch key, in the order in which
// they came (P11), and says how many this call completed. Call it after every
// change that may let one of them complete.
//
// It runs TryComplete and Complete on the calling goroutine, and never waits
// for a check that runs elsewhere: it has that goroutine look again (P6). So
// it may be called from anywhere that TryComplete and Complete may run, from a
// Complete also. Under a lock that those take use [Purgatory.CheckAndCompleteLater].
//
// It takes time proportional to the watchers of key, and allocates nothing.
func (p *Purgatory[K]) CheckAndComplete(key K) int {
	return p.walk(key, checking)
}

// CancelForKey ends all operations that watch key, as Cancelled, and says how
// many this call did end so. Those watched under other keys too leave those as
// well. Operations being checked just now are ended by their checkers.
func (p *Purgatory[K]) CancelForKey(key K) int {
	return p.walk(key, cancelling)
}

// expire is the wheel's expiry function.
func (p *Purgatory[K]) expire(h Pending) {
	if h.IsZero() {
		p.checkDeferred()
		return
	}
	h.end(Expired)
}
