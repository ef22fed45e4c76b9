package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/durable/store"
)

// SwapPlans changes plans; see [store.Store]. At maxmemory one that adds something changes
// nothing, and the error is store.ErrFull. Bodies of more than 1 MiB together are sent in
// parts, one after the other; if one fails after others were made, the error is store.ErrUnsure,
// too.
func (s *Store) SwapPlans(ctx context.Context, n int, swaps []store.PlanSwap) ([]store.SwapResult, store.Horizon, error) {
	return inParts(swaps, sizeOfSwap, s.part, func(part []store.PlanSwap) ([]store.SwapResult, store.Horizon, error) {
		args := make([]any, 0, 1+8*len(part))
		args = append(args, s.o.Limits.MaxPending)
		for i := range part {
			args = appendSwap(args, &part[i])
		}
		r, err := s.change(ctx, n, swapping, swapScript, args)
		if r == nil {
			return nil, store.Horizon{}, err
		}
		return answer(eachByte[store.SwapResult](r, len(part)), r, err)
	})
}

func sizeOfSwap(p *store.PlanSwap) int {
	size := len(p.Body)
	for i := range p.Entries {
		size += len(p.Entries[i].Body)
	}
	return size
}

// appendSwap encodes a swap as swap.lua takes it.
func appendSwap(args []any, p *store.PlanSwap) []any {
	was := p.Was[:]
	if p.Was == (store.ID{}) {
		was = nil
	}
	if p.ID == (store.ID{}) {
		return append(args, p.Key, was, "", "", 0, 0, 0, 0)
	}
	head, body := newHead(&store.Entry{Key: p.Key, ID: p.ID, Body: p.Body})
	args = append(args, p.Key, was, head, body, int64(p.Due), int(p.Wake), p.Seen, len(p.Entries))
	for i := range p.Entries {
		e := &p.Entries[i]
		head, body := newHead(e)
		args = append(args, e.Key, when(nil, e.At, e.After), head, body)
	}
	return args
}

// Plans returns plans in order of their keys; see [store.Store].
func (s *Store) Plans(ctx context.Context, n int, after string, limit int) ([]store.Record, error) {
	v, err := s.call(ctx, s.read(s.shards[n], plansScript, after, min(limit, store.MaxItems), store.MaxClaim))
	if err != nil {
		return nil, explained(err)
	}
	r := replyOf(v)
	const fields = 7
	if r.bad || len(r.fields)%fields != 0 {
		return nil, errReply
	}
	records := make([]store.Record, 0, len(r.fields)/fields)
	for i := 0; i < len(r.fields); i += fields {
		record, err := recordOf(r.text(i), r.text(i+1), r.text(i+2), r.text(i+3), r.millis(i+4), r.millis(i+5), 0, r.text(i+6))
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, r.err()
}

var errHistory = errors.New("redisstore: a history is damaged")

// decodeHistory decodes the history of a plan, as common.lua says; nil if the key is not that
// of a plan.
func decodeHistory(key, s string) (*store.History, error) {
	if !store.IsPlan(key) {
		return nil, nil
	}
	b := bytesReader{left: s}
	_ = b.number(1) // the scripts' business
	h := &store.History{Done: b.number(6), Dead: b.number(6), Cancelled: b.number(6)}
	for n := b.number(1); n > 0 && !b.bad; n-- {
		var note store.Note
		if size := int(b.number(1)); size > 0 {
			note.Key = key + b.take(size)
		} else {
			note.Key = fmt.Sprintf("%s%013d", key, b.number(6))
		}
		note.Outcome = store.Outcome(b.number(1))
		note.Begun, note.Ended = store.Millis(b.number(6)), store.Millis(b.number(6))
		note.Attempts = int(b.number(2))
		note.Error = b.take(int(b.number(1)))
		h.Last = append(h.Last, note)
	}
	if b.bad || b.left != "" {
		return nil, errHistory
	}
	return h, nil
}

// bytesReader takes a text apart; bad reports whether it ended too early.
type bytesReader struct {
	left string
	bad  bool
}

func (r *bytesReader) take(n int) string {
	if n > len(r.left) {
		r.bad, r.left = true, ""
		return ""
	}
	taken := r.left[:n]
	r.left = r.left[n:]
	return taken
}

// number reads a little-endian number of n bytes.
func (r *bytesReader) number(n int) (v uint64) {
	for i, c := range []byte(r.take(n)) {
		v |= uint64(c) << (8 * i)
	}
	return v
}
