package replica

import (
	"sync"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Disk keeps a stopped broker's logs. Nothing is written to a real one.
type Disk struct {
	mu   sync.Mutex
	logs map[meta.PartitionKey]Stored // guarded by mu
}

// Put keeps a log.
func (d *Disk) Put(key meta.PartitionKey, s Stored) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs == nil {
		d.logs = map[meta.PartitionKey]Stored{}
	}
	d.logs[key] = s
}

// Take hands a log over to a running broker; an empty one if there is none.
func (d *Disk) Take(key meta.PartitionKey) Stored {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer delete(d.logs, key)
	return d.logs[key]
}

// Stored is what of a replica outlives its broker's restart.
type Stored struct {
	log log.Log
	hw  int64
}
