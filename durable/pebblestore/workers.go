package pebblestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Sign gives a worker's sign of life. Signs of life are only in memory: nobody outlives
// the process that has the folder open.
func (s *Store) Sign(ctx context.Context, worker string, ttl time.Duration) ([]string, error) {
	if len(worker) < 1 || len(worker) > store.MaxWorker {
		return nil, fmt.Errorf("durable: a worker's name is %d bytes long, must be 1 to %d", len(worker), store.MaxWorker)
	}
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	now := s.now()
	s.signs.Lock()
	defer s.signs.Unlock()
	s.signs.until[worker] = now.Add(ttl)
	maps.DeleteFunc(s.signs.until, func(_ string, until time.Time) bool { return !until.After(now) })
	return slices.Sorted(maps.Keys(s.signs.until)), nil
}
