package replica

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Set is a broker's replicas of partitions, as leader or follower. The zero value is empty.
type Set struct {
	LogBytes atomic.Int64 // bytes of all logs; each partition adds its changes
	evicting sync.Mutex   // only one goroutine at a time reduces LogBytes

	mu    sync.RWMutex
	byKey map[meta.PartitionKey]*Partition // guarded by mu
}

// Get returns the replica of a partition, nil if there is none.
func (r *Set) Get(key meta.PartitionKey) *Partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byKey[key]
}

// All returns all replicas.
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

// Delete removes a replica.
func (r *Set) Delete(key meta.PartitionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

// LimitSum keeps the size of all logs below a limit: it repeatedly removes a quarter of the largest
// log until a sixteenth of the limit is free. It is called after appends; it scans all partitions,
// but only once per sixteenth.
func (r *Set) LimitSum(limit int64) {
	if r.LogBytes.Load() <= limit || !r.evicting.TryLock() {
		return
	}
	defer r.evicting.Unlock()
	for target := limit - limit/16; r.LogBytes.Load() > target; {
		var largest *Partition
		var size int64
		for _, p := range r.All() {
			if n := p.evictable(); n > size {
				largest, size = p, n
			}
		}
		before := r.LogBytes.Load()
		if largest == nil {
			return
		}
		largest.evict(size - size/4)
		if r.LogBytes.Load() >= before {
			return // only single huge batches or uncommitted records are left
		}
	}
}
