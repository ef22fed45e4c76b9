package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// endOf encodes an outcome: one byte kind, and the delay in milliseconds.
func endOf(e store.Outcome) []byte {
	return strconv.AppendInt([]byte{byte(e.Kind)}, int64(store.MillisOf(e.Delay)), 10)
}

// Claim leases due timers; see [store.Store]. A claim that is sent again, even by another call,
// returns those of its leases that it still has, and leases nothing else. It is recognised by its
// Token for a minute, or for its Lease if that is longer, unless the same worker has leased others
// in the shard since. After that it leases its own timers again, as the same attempts, if they are
// among the first 100 expired leases of the shard.
func (s *Store) Claim(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
	r, err := s.change(ctx, n, claiming, claimScript, []any{
		c.Worker, c.Token[:], c.Max, c.MaxBytes, int64(store.MillisOf(c.Lease)), c.MaxAttempts, c.FirstLane,
		s.o.Limits.MaxDead, int64(store.MillisOf(s.o.Limits.MaxDeadAge)), s.o.Shards, c.Plans,
	})
	if err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	h := r.horizon(1)
	claimed := store.Claimed{DeadLettered: int(r.number(4)), Repaired: int(r.number(5))}
	list := r.list(0)
	const fields = 6
	for i := 0; i+fields <= len(list.fields); i += fields {
		l, err := leaseOf(list, i)
		if err != nil {
			return store.Claimed{}, store.Horizon{}, err
		}
		claimed.Leases = append(claimed.Leases, l)
	}
	if r.bad || list.bad || len(list.fields)%fields != 0 {
		return store.Claimed{}, store.Horizon{}, errReply
	}
	return claimed, h, nil
}

func leaseOf(list *reply, i int) (store.Lease, error) {
	h, err := decodeHead(list.text(i+1), list.text(i+2))
	if err != nil {
		return store.Lease{}, err
	}
	r, err := decodeRun(list.text(i + 3))
	if err != nil {
		return store.Lease{}, err
	}
	key := list.text(i)
	history, err := decodeHistory(key, list.text(i+5))
	if err != nil {
		return store.Lease{}, err
	}
	return store.Lease{
		Holder: store.Holder{Key: key, Fence: r.fence, Token: r.token},
		ID:     h.id, Topic: h.topic, Body: h.body,
		Due: r.due, Attempt: r.attempts, LastError: r.err, End: list.millis(i + 4), History: history,
	}, list.err()
}

// Extend makes leases end later; see [store.Store].
func (s *Store) Extend(ctx context.Context, n int, holders []store.Holder, lease time.Duration) ([]store.ExtendResult, store.Millis, error) {
	sh := s.shards[n]
	args := make([]any, 0, 1+2*len(holders))
	args = append(args, int64(store.MillisOf(lease)))
	for _, h := range holders {
		args = append(args, h.Key, holderOf(h))
	}
	v, err := s.call(ctx, s.changes(sh, extendScript, args))
	r, err := s.replied(sh, v, err)
	if err != nil {
		return nil, 0, err
	}
	results, end := eachByte[store.ExtendResult](r, len(holders)), r.millis(2)
	if r.bad {
		return nil, 0, errReply
	}
	return results, end, nil
}
