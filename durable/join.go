package durable

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-782fa212/limbo/durable/store"
)

// joiner is a shard's group commit: while one request is under way, the calls that
// come are gathered, and are the next request together. So an engine that takes a
// millisecond for an fsync or a round trip takes it once for all of them, and
// whoever comes alone does not wait for others.
//
// The request is nobody's in particular: it is sent by a goroutine that lives while
// there is something to send, with a deadline of its own. The end of a caller's ctx
// ends that caller's waiting.
type joiner struct {
	mu        sync.Mutex
	queue     []*scheduleCall // in the order of their coming; none is in a request
	sending   bool            // a goroutine sends, and will look at queue again
	abandoned map[string]<-chan struct{}
}

// scheduleCall is the part of a call of Schedule that goes to one shard in one
// request.
type scheduleCall struct {
	entries []store.Entry // at most MaxItems
	bytes   int           // of their bodies

	done     chan struct{} // closed when the two below are set
	receipts []store.Receipt
	err      error
}

// maxRequest bounds the bodies of one request, in bytes, if it has more than one
// entry, so that an engine's step stays short.
const maxRequest = store.MaxClaim

// send gives calls to their shards' joiners.
func (t *Timers) send(shard int, calls ...*scheduleCall) error {
	j := &t.joiners[shard]
	j.mu.Lock()
	defer j.mu.Unlock()
	if t.closed.Load() {
		return ErrClosed
	}
	j.queue = append(j.queue, calls...)
	if !j.sending {
		j.sending = true
		t.senders.Go(func() { t.sendAll(shard) })
	}
	return nil
}

// sendAll sends what is in a shard's queue, one request after the other, until it
// is empty.
func (t *Timers) sendAll(shard int) {
	j := &t.joiners[shard]
	for calls := j.take(); len(calls) > 0; calls = j.take() {
		if t.closed.Load() {
			endCalls(calls, nil, ErrClosed)
			continue
		}
		entries := calls[0].entries
		if len(calls) > 1 {
			entries = nil
			for _, c := range calls {
				entries = append(entries, c.entries...)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), t.options.CallTimeout)
		receipts, _, err := t.store.Schedule(ctx, shard, entries)
		cancel()
		endCalls(calls, receipts, err)
	}
}

// take takes the calls of the next request out of the queue. If there is none the
// sender must leave.
func (j *joiner) take() []*scheduleCall {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = nil // the request before has ended
	if len(j.queue) == 0 {
		j.sending = false
		return nil
	}
	n, entries, bytes := 0, 0, 0
	for _, c := range j.queue {
		entries, bytes = entries+len(c.entries), bytes+c.bytes
		if n > 0 && (entries > store.MaxItems || bytes > maxRequest) {
			break
		}
		n++
	}
	calls := slices.Clone(j.queue[:n])
	j.queue = slices.Delete(j.queue, 0, n) // it clears what it leaves behind
	return calls
}

// endCalls gives each call its result.
func endCalls(calls []*scheduleCall, receipts []store.Receipt, err error) {
	for _, c := range calls {
		c.err = err
		if n := len(c.entries); len(receipts) >= n { // not after most errors
			c.receipts, receipts = receipts[:n:n], receipts[n:]
		}
		close(c.done)
	}
}

// wait waits for a call. If ctx ends before, it withdraws the call from the queue, or
// abandons it if it is in a request, whose result is not known then.
func (t *Timers) wait(ctx context.Context, shard int, c *scheduleCall) ([]store.Receipt, error) {
	select {
	case <-c.done:
		return c.receipts, c.err
	case <-ctx.Done():
	}
	j := &t.joiners[shard]
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.queue, c); i >= 0 {
		j.queue = slices.Delete(j.queue, i, i+1)
		return nil, context.Cause(ctx)
	}
	select {
	case <-c.done: // both had happened
		return c.receipts, c.err
	default:
	}
	if j.abandoned == nil {
		j.abandoned = make(map[string]<-chan struct{})
	}
	for _, e := range c.entries {
		j.abandoned[e.Key] = c.done
	}
	return nil, fmt.Errorf("%w: %w", ErrUnsure, context.Cause(ctx))
}

// settled waits until no request of Schedule is under way whose caller has left any of
// the keys in it.
func (t *Timers) settled(ctx context.Context, shard int, keys ...string) error {
	j := &t.joiners[shard]
	var done <-chan struct{}
	j.mu.Lock()
	for i := 0; i < len(keys) && len(j.abandoned) > 0 && done == nil; i++ {
		done = j.abandoned[keys[i]]
	}
	j.mu.Unlock()
	if done == nil {
		return nil
	}
	select { // one request is under way for the shard, so this is the end of all calls in it
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
