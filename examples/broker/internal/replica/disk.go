package replica

import (
	"sync"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Disk keeps the logs of a stopped broker, in memory.
type Disk struct {
	mu   sync.Mutex
	logs map[meta.PartitionKey]Stored // guarded by mu
}

// Put stores a log.
func (d *Disk) Put(key meta.PartitionKey, s Stored) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs == nil {
		d.logs = map[meta.PartitionKey]Stored{}
	}
	d.logs[key] = s
}

// Take removes a log and returns it; an empty one if there is none.
func (d *Disk) Take(key meta.PartitionKey) Stored {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer delete(d.logs, key)
	return d.logs[key]
}

// Stored is the part of a replica that survives a restart of its broker.
type Stored struct {
	log log.Log
	hw  int64
}
