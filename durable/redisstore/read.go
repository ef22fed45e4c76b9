package redisstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// read returns a request that changes nothing.
func (s *Store) read(sh *shard, sc *script, args ...any) *request {
	return &request{script: sc, keys: sh.names, args: append([]any{s.clock(), s.publish, sh.channel}, args...)}
}

// Get returns one timer; see [store.Store].
func (s *Store) Get(ctx context.Context, n int, key string) (store.Record, error) {
	v, err := s.call(ctx, s.read(s.shards[n], getScript, key))
	if err != nil {
		return store.Record{}, explained(err)
	}
	if v == nil {
		return store.Record{}, store.ErrNotFound
	}
	return recordOf(key, replyOf(v), 0)
}

// recordFields is how many fields of a reply recordOf reads.
const recordFields = 8

// recordOf decodes a timer or a plan with its body, as get.lua and plans.lua return it, from field
// i on.
func recordOf(key string, r *reply, i int) (store.Record, error) {
	h, err := decodeHead(r.text(i), r.text(i+1))
	if err != nil {
		return store.Record{}, err
	}
	run, err := decodeRun(r.text(i + 2))
	if err != nil {
		return store.Record{}, err
	}
	history, err := decodeHistory(key, r.text(i+7))
	if err != nil {
		return store.Record{}, err
	}
	record := store.Record{
		Key: key, ID: h.id, Topic: h.topic, Body: h.body,
		Due: run.due, Attempts: run.attempts, LastError: run.err, History: history,
	}
	due, leaseEnd, died, successor := r.millis(i+3), r.millis(i+4), r.millis(i+5), r.text(i+6)
	switch {
	case r.bad:
		return store.Record{}, errReply
	case leaseEnd != 0:
		record.State, record.LeaseEnd, record.Cancelled = store.Leased, leaseEnd, run.cancelled
		record.Fence, record.Token = run.fence, run.token
		if len(successor) == 8 {
			record.SuccessorDue = store.Millis(binary.LittleEndian.Uint64([]byte(successor)))
		}
	case died != 0:
		record.State, record.Died = store.Dead, died
	case due != 0:
		record.State, record.Due = store.Waiting, due
	default:
		return store.Record{}, store.ErrNotFound // a head without a state: a claim removes it
	}
	return record, nil
}

// List returns a page of timers; see [store.Store].
func (s *Store) List(ctx context.Context, n int, q store.Query) (store.Page, error) {
	if err := q.Check(); err != nil {
		return store.Page{}, err
	}
	state := map[store.State]string{store.Waiting: "w", store.Leased: "l", store.Dead: "d"}[q.State]
	v, err := s.call(ctx, s.read(s.shards[n], listScript,
		state, int64(q.After.At), q.After.Key, q.Limit, q.ScanLimit(), q.Prefix, q.Topic, store.LowerASCII(q.Error)))
	if err != nil {
		return store.Page{}, explained(err)
	}
	r := replyOf(v)
	list := r.list(0)
	page := store.Page{Next: store.Cursor{At: r.millis(1), Key: r.text(2)}, More: r.number(3) == 1}
	const fields = 5
	if r.bad || list.bad || len(list.fields)%fields != 0 {
		return store.Page{}, errReply
	}
	for i := 0; i < len(list.fields); i += fields {
		record, err := listed(q.State, list, i)
		if err != nil {
			return store.Page{}, err
		}
		page.Records = append(page.Records, record)
	}
	return page, list.err()
}

// listed decodes a timer as list.lua returns it, from field i on.
func listed(state store.State, r *reply, i int) (store.Record, error) {
	record := store.Record{Key: r.text(i), State: state}
	if text := r.text(i + 2); text != "" { // otherwise the timer has a state but no record
		h, err := decodeHead(text, "")
		if err != nil {
			return record, err
		}
		record.ID, record.Topic = h.id, h.topic
	}
	run, err := decodeRun(r.text(i + 3))
	if err != nil {
		return record, err
	}
	record.Due, record.Attempts, record.LastError = run.due, run.attempts, run.err
	switch at := r.millis(i + 1); state {
	case store.Waiting:
		record.Due = at
	case store.Dead:
		record.Died = at
	case store.Leased:
		record.LeaseEnd, record.Cancelled = at, run.cancelled
		record.Fence, record.Token = run.fence, run.token
		if due := r.text(i + 4); len(due) == 8 {
			record.SuccessorDue = store.Millis(binary.LittleEndian.Uint64([]byte(due)))
		}
	}
	return record, nil
}

// pollTimeout is how long Horizons waits for the other servers once one has answered.
const pollTimeout = time.Second

// Horizons returns the horizons of shards; see [store.Store]. It sends one command for each shard.
// Once a server has answered, the others have another second.
func (s *Store) Horizons(ctx context.Context, shards []int) ([]store.Horizon, error) {
	requests := make([]*request, len(shards))
	for i, n := range shards {
		requests[i] = s.read(s.shards[n], horizonsScript)
	}
	replies, err := s.callAll(ctx, requests, pollTimeout)
	if replies == nil {
		return nil, explained(err)
	}
	horizons := make([]store.Horizon, len(shards))
	for i, v := range replies {
		if v == nil {
			continue // err says why
		}
		r := replyOf(v)
		horizons[i] = r.horizon(0)
		if r.bad {
			return nil, errReply
		}
		s.shards[shards[i]].clock.observe(horizons[i].Now)
	}
	return horizons, explained(err)
}

// Stats returns the counts of a shard; see [store.Store].
func (s *Store) Stats(ctx context.Context, n int) (store.Stats, error) {
	v, err := s.call(ctx, s.read(s.shards[n], statsScript))
	if err != nil {
		return store.Stats{}, explained(err)
	}
	r := replyOf(v)
	st := store.Stats{
		Horizon: r.horizon(0), Waiting: int(r.number(3)), Overdue: int(r.number(4)),
		Leased: int(r.number(5)), Dead: int(r.number(6)), Dropped: uint64(r.number(7)),
		Plans: int(r.number(8)), PlansOverdue: int(r.number(9)), Scheduled: uint64(r.number(10)),
	}
	return st, r.err()
}

// CountDue counts the waiting timers by due time; see [store.Store]. It counts all of them without
// reading timers, with one command for each lane and pair of edges.
func (s *Store) CountDue(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
	if err := store.CheckEdges(edges); err != nil {
		return store.DueCounts{}, err
	}
	args := make([]any, len(edges))
	for i, at := range edges {
		args[i] = int64(at)
	}
	v, err := s.call(ctx, s.read(s.shards[n], countDueScript, args...))
	if err != nil {
		return store.DueCounts{}, explained(err)
	}
	r := replyOf(v)
	counts := make([]int, len(edges)-1)
	for i := range counts {
		counts[i] = int(r.number(i))
	}
	return store.DueCounts{Counts: counts}, r.err()
}
