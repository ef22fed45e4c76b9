package durable

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-782fa212/limbo/durable/store"
)

// joiner is the group commit of a shard, for changes of one kind: calls that arrive while one
// request is in flight are gathered into the next request. So an engine that takes a millisecond
// for an fsync or a round trip takes it once for all of them, and a single call does not wait for
// others.
//
// A request belongs to no single caller: a goroutine that runs while there is something to send
// sends it, with its own deadline. The end of a caller's ctx ends only that caller's wait.
type joiner[I, R any] struct {
	timers  *Timers
	shard   int
	request func(ctx context.Context, shard int, items []I) ([]R, store.Horizon, error)
	key     func(I) string

	mu        sync.Mutex
	queue     []*joined[I, R] // in order of arrival; none is in a request
	sending   bool            // a goroutine sends, and will check queue again
	abandoned map[string]<-chan struct{}
}

// joined is the part of a call that goes to one shard in one request.
type joined[I, R any] struct {
	items []I // at most MaxItems
	bytes int // of their bodies

	done    chan struct{} // closed when the two below are set
	results []R
	err     error
}

func newJoined[I, R any](bytes int, items ...I) *joined[I, R] {
	return &joined[I, R]{items: items, bytes: bytes, done: make(chan struct{})}
}

func joinersOf[I, R any](t *Timers, request func(context.Context, int, []I) ([]R, store.Horizon, error), key func(I) string) []*joiner[I, R] {
	all := make([]*joiner[I, R], t.store.Shards())
	for shard := range all {
		all[shard] = &joiner[I, R]{timers: t, shard: shard, request: request, key: key}
	}
	return all
}

// maxRequest bounds the bodies of a request with more than one item, in bytes, so that an engine's
// step stays short.
const maxRequest = store.MaxClaim

// send queues calls, and starts the sender if none runs.
func (j *joiner[I, R]) send(calls ...*joined[I, R]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.timers.closed.Load() {
		return ErrClosed
	}
	j.queue = append(j.queue, calls...)
	if !j.sending {
		j.sending = true
		j.timers.senders.Go(j.sendAll)
	}
	return nil
}

// barrier returns once every call that saw the Timers open has started its sender.
func (j *joiner[I, R]) barrier() {
	j.mu.Lock()
	j.mu.Unlock() //nolint:staticcheck // an empty section is meant
}

// sendAll sends the queue, one request after the other, until it is empty.
func (j *joiner[I, R]) sendAll() {
	t := j.timers
	for calls := j.nextRequest(); len(calls) > 0; calls = j.nextRequest() {
		if t.closed.Load() {
			endCalls(calls, nil, ErrClosed)
			continue
		}
		items := calls[0].items
		if len(calls) > 1 {
			items = nil
			for _, c := range calls {
				items = append(items, c.items...)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), t.options.CallTimeout)
		results, _, err := j.request(ctx, j.shard, items)
		cancel()
		endCalls(calls, results, err)
	}
}

// nextRequest removes the calls of the next request from the queue. If it returns none, the sender
// must end.
func (j *joiner[I, R]) nextRequest() []*joined[I, R] {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = nil // the previous request has ended
	if len(j.queue) == 0 {
		j.sending = false
		return nil
	}
	n, items, bytes := 0, 0, 0
	for _, c := range j.queue {
		items, bytes = items+len(c.items), bytes+c.bytes
		if n > 0 && (items > store.MaxItems || bytes > maxRequest) {
			break
		}
		n++
	}
	calls := slices.Clone(j.queue[:n])
	j.queue = slices.Delete(j.queue, 0, n) // Delete clears the freed elements
	return calls
}

// endCalls gives each call its result.
func endCalls[I, R any](calls []*joined[I, R], results []R, err error) {
	for _, c := range calls {
		c.err = err
		if n := len(c.items); len(results) >= n { // not after most errors
			c.results, results = results[:n:n], results[n:]
		}
		close(c.done)
	}
}

// wait waits for a call. If ctx ends first, it withdraws the call from the queue; a call that is
// already in a request is abandoned, and its result is unknown.
func (j *joiner[I, R]) wait(ctx context.Context, c *joined[I, R]) ([]R, error) {
	select {
	case <-c.done:
		return c.results, c.err
	case <-ctx.Done():
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.queue, c); i >= 0 {
		j.queue = slices.Delete(j.queue, i, i+1)
		return nil, context.Cause(ctx)
	}
	select {
	case <-c.done: // done at the same time
		return c.results, c.err
	default:
	}
	if j.abandoned == nil {
		j.abandoned = make(map[string]<-chan struct{})
	}
	for _, item := range c.items {
		j.abandoned[j.key(item)] = c.done
	}
	return nil, fmt.Errorf("%w: %w", ErrUnsure, context.Cause(ctx))
}

// waitAbandoned waits until no abandoned call with any of the keys is in flight.
func (j *joiner[I, R]) waitAbandoned(ctx context.Context, keys ...string) error {
	var done <-chan struct{}
	j.mu.Lock()
	for i := 0; i < len(keys) && len(j.abandoned) > 0 && done == nil; i++ {
		done = j.abandoned[keys[i]]
	}
	j.mu.Unlock()
	if done == nil {
		return nil
	}
	select { // a shard has one request in flight, so done ends all calls in it
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
