package pebblestore

import (
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Heartbeat marks a worker as live; see [store.Store]. Workers are only in memory: none outlives
// the process that has the folder open.
func (s *Store) Heartbeat(ctx context.Context, h store.Heartbeat) ([]string, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	return s.roster.Heartbeat(s.now(), h), nil
}

// Workers lists the workers; see [store.Store].
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	return s.roster.Workers(s.now()), nil
}
