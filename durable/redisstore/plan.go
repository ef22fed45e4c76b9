package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-782fa212/limbo/durable/store"
)

// SwapPlans changes plans; see [store.Store]. At maxmemory a call that adds a plan or an occurrence
// changes nothing and returns store.ErrFull. Bodies of more than 1 MiB in total, or more than 500
// plans and occurrences, are sent in parts, one after the other; if a part fails after another was
// stored, the error is also store.ErrUnsure. A part has at least one swap. A repeated call gets its
// leases again, by the Token in their records, while they are leased.
func (s *Store) SwapPlans(ctx context.Context, n int, swaps []store.PlanSwap, take store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	if err := take.Check(); err != nil {
		return nil, nil, store.Horizon{}, err
	}
	var leases []store.Lease
	results, h, err := inParts(swaps, s.partOfSwaps, func(part []store.PlanSwap) ([]store.SwapResult, store.Horizon, error) {
		rest := take
		rest.Max = max(take.Max-len(leases), 0)
		results, some, h, err := s.swap(ctx, n, part, rest)
		leases = append(leases, some...)
		return results, h, err
	})
	if results == nil {
		return nil, nil, store.Horizon{}, err
	}
	return results, leases, h, err
}

// partOfSwaps returns how many swaps go into one request.
func (s *Store) partOfSwaps(swaps []store.PlanSwap) int {
	size, keys := 0, 0
	for i := range swaps {
		p := &swaps[i]
		size += len(p.Body)
		for j := range p.Entries {
			size += len(p.Entries[j].Body)
		}
		keys += 1 + len(p.Entries)
		if (size > s.part || keys > store.MaxItems) && i > 0 {
			return i
		}
	}
	return len(swaps)
}

func (s *Store) swap(ctx context.Context, n int, swaps []store.PlanSwap, take store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	const each, eachEntry = 8, 4 // arguments
	args := make([]any, 0, 4+(each+eachEntry)*len(swaps))
	args = append(args, s.o.Limits.MaxPending, take.Token[:], int64(store.MillisOf(take.Lease)), take.Max)
	for i := range swaps {
		p := &swaps[i]
		if p.ID == (store.ID{}) {
			args = append(args, p.Key, p.Expected[:], "", "", 0, 0, 0, 0)
			continue
		}
		head, body := newHead(&store.Entry{Key: p.Key, ID: p.ID, Body: p.Body})
		args = append(args, p.Key, p.Expected[:], head, body, int64(p.Due), int(p.Wake), p.Seen, len(p.Entries))
		for j := range p.Entries {
			e := &p.Entries[j]
			head, body := newHead(e)
			args = append(args, e.Key, when(nil, e.At, e.After), head, body)
		}
	}
	r, err := s.change(ctx, n, swapping, swapScript, args)
	if r == nil {
		return nil, nil, store.Horizon{}, err
	}
	d := decoder{[]byte(r.text(0)), false}
	results := make([]store.SwapResult, len(swaps))
	for i := range results {
		results[i] = store.SwapResult(d.number(1))
	}
	var leases []store.Lease
	for len(d.rest) > 0 {
		i, j := d.number(2), d.number(1)
		if i >= uint64(len(swaps)) || j >= uint64(len(swaps[i].Entries)) {
			return nil, nil, store.Horizon{}, errReply
		}
		e := &swaps[i].Entries[j]
		leases = append(leases, store.Lease{
			Holder: store.Holder{Key: e.Key, Fence: d.number(8), Token: take.Token},
			ID:     e.ID, Topic: e.Topic, Body: e.Body,
			Due: store.Millis(d.number(8)), Attempt: 1, End: store.Millis(d.number(8)),
		})
	}
	if d.short {
		return nil, nil, store.Horizon{}, errReply
	}
	results, h, err := answer(results, r, err)
	return results, leases, h, err
}

// Plans returns plans in order of their keys; see [store.Store].
func (s *Store) Plans(ctx context.Context, n int, after string, limit int) ([]store.Record, error) {
	limit = min(limit, store.MaxItems)
	v, err := s.call(ctx, s.read(s.shards[n], plansScript, after, limit, store.MaxClaim))
	if err != nil {
		return nil, explained(err)
	}
	r := replyOf(v)
	const fields = 1 + recordFields
	if r.bad || len(r.fields)%fields != 0 {
		return nil, errReply
	}
	records := make([]store.Record, 0, len(r.fields)/fields)
	for i := 0; i < len(r.fields); i += fields {
		record, err := recordOf(r.text(i), r, i+1)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, r.err()
}

const (
	digits = 13 // of an occurrence's key, kept as a number
	packed = 4  // flag in a note's first byte: the key is such a number
)

// decodeHistory decodes a plan's history in the format of common.lua. It returns nil for a timer.
func decodeHistory(key, s string) (*store.History, error) {
	if !store.IsPlan(key) {
		return nil, nil
	}
	h := &store.History{}
	if s == "" {
		return h, nil
	}
	d := decoder{[]byte(s), false}
	d.bytes(1) // the wake
	n := d.number(1)
	h.Done, h.Dead, h.Cancelled = d.number(6), d.number(6), d.number(6)
	for range n {
		var note store.Note
		first := d.number(1)
		note.Outcome = store.OccurrenceOutcome(first &^ packed)
		if first&packed != 0 {
			note.Key = key + fmt.Sprintf("%0*d", digits, d.number(6))
		} else {
			note.Key = key + string(d.bytes(int(d.number(2))))
		}
		note.Begun, note.Ended = store.Millis(d.number(6)), store.Millis(d.number(6))
		note.Attempts = int(d.number(2))
		note.Error = string(d.bytes(int(d.number(1))))
		h.Last = append(h.Last, note)
	}
	if d.short || len(d.rest) > 0 {
		return nil, fmt.Errorf("redisstore: the history of %s is not one", strconv.Quote(key))
	}
	return h, nil
}

// decoder reads from the front of rest, and notes whether that was too short.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.rest) {
		d.rest, d.short = nil, true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// number reads a number of n bytes.
func (d *decoder) number(n int) uint64 {
	var buf [8]byte
	copy(buf[:], d.bytes(n))
	return binary.LittleEndian.Uint64(buf[:])
}
