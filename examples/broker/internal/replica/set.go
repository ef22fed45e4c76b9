package replica

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Set is what a broker holds of partitions, led or followed. The zero value holds
// nothing.
type Set struct {
	Kept     atomic.Int64 // bytes in all logs; each partition adds its changes
	evicting sync.Mutex   // one goroutine at a time brings kept down

	mu    sync.RWMutex
	byKey map[meta.PartitionKey]*Partition // guarded by mu
}

// Get returns the replica of a partition; nil: there is none.
func (r *Set) Get(key meta.PartitionKey) *Partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byKey[key]
}

// All lists the replicas.
func (r *Set) All() []*Partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.byKey))
}

// Put adds a replica.
func (r *Set) Put(p *Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = map[meta.PartitionKey]*Partition{}
	}
	r.byKey[p.Key] = p
}

// Delete takes a replica out.
func (r *Set) Delete(key meta.PartitionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

// LimitSum keeps all logs together below a limit: the largest one loses a
// quarter, again and again, until a sixteenth is free. It is called after
// appends; it is a scan of all partitions, but once per sixteenth.
func (r *Set) LimitSum(limit int64) {
	if r.Kept.Load() <= limit || !r.evicting.TryLock() {
		return
	}
	defer r.evicting.Unlock()
	for target := limit - limit/16; r.Kept.Load() > target; {
		var largest *Partition
		var size int64
		for _, p := range r.All() {
			if n := p.spare(); n > size {
				largest, size = p, n
			}
		}
		before := r.Kept.Load()
		if largest == nil {
			return
		}
		largest.free(size - size/4)
		if r.Kept.Load() >= before {
			return // single huge batches, or nothing committed; no more can go
		}
	}
}
