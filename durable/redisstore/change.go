package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/durable/store"
)

// change sends a request whose reply the server keeps, so that it can be sent again, and returns
// the reply. Each shard has at most one request of a kind in flight. With ErrUnconfirmed change
// also returns a reply.
func (s *Store) change(ctx context.Context, n int, k kind, sc *script, args []any) (*reply, error) {
	sh := s.shards[n]
	ctx, cancel, err := s.limit(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	o, err := sh.begin(ctx, k)
	if err != nil {
		return nil, s.noAnswerError(ctx, &flight{}, nil)
	}
	defer sh.end(k)
	r := s.changes(sh, sc, args)
	r.order, r.wait = o, k != claiming
	v, err := s.within(ctx, func(fl *flight) (any, error) { return s.attempts(ctx, r, fl) })
	return s.replied(sh, v, err)
}

// changes returns a request that changes something.
func (s *Store) changes(sh *shard, sc *script, args []any) *request {
	all := make([]any, 0, orderAt+1+len(args))
	all = append(append(all, s.clock(), s.publish, sh.channel, nil), args...)
	return &request{script: sc, keys: sh.names, args: all, clock: &sh.clock}
}

// replied decodes the reply to a request that changes something: its second field is the server's
// time.
func (s *Store) replied(sh *shard, v any, err error) (*reply, error) {
	if err != nil && !errors.Is(err, store.ErrUnconfirmed) {
		return nil, explained(err)
	}
	r := replyOf(v)
	present := r.millis(1)
	if r.bad {
		return nil, errReply
	}
	sh.clock.observe(present)
	return r, err
}

// maxPart bounds the bytes of bodies in one request, so that a script takes a few milliseconds.
const maxPart = 1 << 20

// Schedule adds timers; see [store.Store]. At maxmemory it changes nothing and returns
// store.ErrFull. Bodies of more than 1 MiB in total are sent in parts, one after the other; if a
// part fails after another was stored, the error is also store.ErrUnsure.
func (s *Store) Schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	return inParts(entries, s.partOf, func(part []store.Entry) ([]store.Receipt, store.Horizon, error) {
		return s.schedule(ctx, n, part)
	})
}

// inParts sends items in parts, of the length that partOf returns, and returns all results with the
// last horizon.
func inParts[T, R any](items []T, partOf func([]T) int, send func([]T) ([]R, store.Horizon, error)) ([]R, store.Horizon, error) {
	var results []R
	var h store.Horizon
	var unconfirmed error
	for results == nil || len(results) < len(items) {
		rest := items[len(results):]
		some, last, err := send(rest[:partOf(rest)])
		switch {
		case some == nil && results != nil && !errors.Is(err, store.ErrUnsure):
			return nil, store.Horizon{}, fmt.Errorf("%w: %w", store.ErrUnsure, err)
		case some == nil:
			return nil, store.Horizon{}, err
		case err != nil:
			unconfirmed = err
		}
		if results == nil {
			results = some // not nil, even if there are no items
		} else {
			results = append(results, some...)
		}
		h = last
	}
	return results, h, unconfirmed
}

// partOf returns how many entries go into one request.
func (s *Store) partOf(entries []store.Entry) int {
	size := 0
	for i, e := range entries {
		size += len(e.Body)
		if size > s.part && i > 0 {
			return i
		}
	}
	return len(entries)
}

func (s *Store) schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	args := make([]any, 0, 1+4*len(entries))
	args = append(args, s.o.Limits.MaxPending)
	for i := range entries {
		e := &entries[i]
		head, body := newHead(e)
		args = append(args, e.Key, whenEntry(e), head, body)
	}
	r, err := s.change(ctx, n, scheduling, scheduleScript, args)
	if r == nil {
		return nil, store.Horizon{}, err
	}
	const size = 1 + 8
	kinds := []byte(r.sized(0, size*len(entries)))
	receipts := make([]store.Receipt, len(entries))
	for i := range receipts {
		b := kinds[size*i:]
		receipts[i] = store.Receipt{Kind: store.ReceiptKind(b[0]), Due: store.Millis(binary.LittleEndian.Uint64(b[1:]))}
	}
	return answer(receipts, r, err)
}

// answer returns the results of a change with the horizon of its reply.
func answer[T any](results []T, r *reply, err error) ([]T, store.Horizon, error) {
	h := r.horizon(1)
	if r.bad {
		return nil, store.Horizon{}, errReply
	}
	return results, h, err
}

// eachByte decodes results of one byte each.
func eachByte[T ~uint8](r *reply, n int) []T {
	s := r.sized(0, n)
	results := make([]T, n)
	for i := range results {
		results[i] = T(s[i])
	}
	return results
}

func texts(keys []string) []any {
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	return args
}

// Cancel removes waiting timers and marks leased ones; see [store.Store]. If it is sent again after
// a cut connection, it returns the results of the first request.
func (s *Store) Cancel(ctx context.Context, n int, keys []string) ([]store.CancelResult, error) {
	r, err := s.change(ctx, n, cancelling, cancelScript, texts(keys))
	if r == nil {
		return nil, err
	}
	results := eachByte[store.CancelResult](r, len(keys))
	if r.bad {
		return nil, errReply
	}
	return results, err
}

// Reschedule moves waiting timers; see [store.Store].
func (s *Store) Reschedule(ctx context.Context, n int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
	args := make([]any, 0, 2*len(moves))
	for _, m := range moves {
		args = append(args, m.Key, when(nil, m.At, m.After))
	}
	r, err := s.change(ctx, n, rescheduling, rescheduleScript, args)
	if r == nil {
		return nil, store.Horizon{}, err
	}
	return answer(eachByte[store.MoveResult](r, len(moves)), r, err)
}

// Requeue makes dead letters wait again; see [store.Store].
func (s *Store) Requeue(ctx context.Context, n int, keys []string) ([]store.RequeueResult, store.Horizon, error) {
	r, err := s.change(ctx, n, requeueing, requeueScript, texts(keys))
	if r == nil {
		return nil, store.Horizon{}, err
	}
	return answer(eachByte[store.RequeueResult](r, len(keys)), r, err)
}

// Purge removes dead letters; see [store.Store].
func (s *Store) Purge(ctx context.Context, n int, keys []string) (int, error) {
	r, err := s.change(ctx, n, purging, purgeScript, texts(keys))
	if r == nil {
		return 0, err
	}
	count := binary.LittleEndian.Uint32([]byte(r.sized(0, 4)))
	if r.bad {
		return 0, errReply
	}
	return int(count), err
}

// End ends runs, each with its outcome; see [store.Store].
func (s *Store) End(ctx context.Context, n int, ends []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	args := make([]any, 0, 4*len(ends))
	for _, e := range ends {
		args = append(args, e.Key, holderOf(e.Holder), endOf(e), store.CutError(e.Error))
	}
	r, err := s.change(ctx, n, ending, endScript, args)
	if r == nil {
		return nil, store.Horizon{}, err
	}
	return answer(eachByte[store.EndResult](r, len(ends)), r, err)
}
