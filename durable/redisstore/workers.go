package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Heartbeat marks a worker as live; see [store.Store].
func (s *Store) Heartbeat(ctx context.Context, h store.Heartbeat) ([]string, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	args := []any{
		s.clock(), h.Worker, int64(store.MillisOf(h.TTL)), nil, h.Status, store.KeepWorker.Milliseconds(), store.MaxDeadWorkers,
	}
	v, err := s.call(ctx, &request{script: heartbeatScript, keys: s.workers[:], args: args, clock: &s.heartbeatClock})
	if err != nil {
		return nil, explained(err)
	}
	r := replyOf(v)
	present := r.millis(0)
	names := make([]string, max(len(r.fields)-1, 0))
	for i := range names {
		names[i] = r.text(1 + i)
	}
	if err := r.err(); err != nil {
		return nil, fmt.Errorf("%w: heartbeat", err)
	}
	s.heartbeatClock.observe(present)
	slices.Sort(names)
	return names, nil
}

// Workers lists the workers; see [store.Store].
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	v, err := s.call(ctx, &request{script: workersScript, keys: s.workers[:], args: []any{s.clock()}})
	if err != nil {
		return nil, explained(err)
	}
	r := replyOf(v)
	now := r.millis(0)
	workers := []store.Worker{}
	dead := 0
	for i := 1; i < len(r.fields); i += 3 {
		w := store.Worker{Name: r.text(i)}
		expires, status := r.millis(i+1), r.text(i+2)
		if w.Name == "" || expires+store.MillisOf(store.KeepWorker) <= now {
			continue
		}
		w.Heartbeat = expires
		if len(status) >= 8 {
			w.Heartbeat -= store.Millis(binary.LittleEndian.Uint64([]byte(status)))
			w.Status = []byte(status[8:])
		}
		if w.Live = expires > now; !w.Live {
			dead++
		}
		workers = append(workers, w)
	}
	if err := r.err(); err != nil {
		return nil, fmt.Errorf("%w: workers", err)
	}
	workers = workers[max(dead-store.MaxDeadWorkers, 0):] // they are in order of expiry
	slices.SortFunc(workers, func(a, b store.Worker) int { return cmp.Compare(a.Name, b.Name) })
	return workers, nil
}
