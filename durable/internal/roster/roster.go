// Package roster keeps the workers of a store in memory, for the engines that live in one process.
package roster

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Roster lists workers by their heartbeats. The zero value is empty and ready for use. All methods
// are safe for concurrent use.
type Roster struct {
	mu      sync.Mutex
	workers map[string]entry
}

type entry struct {
	beat, until time.Time // the last heartbeat, and when it expires
	status      []byte
}

// Heartbeat records a heartbeat that arrives at now, and returns the names of the live workers, in
// order.
func (r *Roster) Heartbeat(now time.Time, h store.Heartbeat) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers == nil {
		r.workers = map[string]entry{}
	}
	delete(r.workers, h.Worker)
	if h.TTL > 0 {
		r.workers[h.Worker] = entry{now, now.Add(h.TTL), bytes.Clone(h.Status)}
	}
	r.forgetLocked(now)
	names := []string{}
	for name, e := range r.workers {
		if e.until.After(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Workers returns the live and the recently dead workers at now, by name.
func (r *Roster) Workers(now time.Time) []store.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(now)
	list := make([]store.Worker, 0, len(r.workers))
	for name, e := range r.workers {
		list = append(list, store.Worker{
			Name: name, Live: e.until.After(now), Heartbeat: store.Millis(e.beat.UnixMilli()), Status: bytes.Clone(e.status),
		})
	}
	slices.SortFunc(list, func(a, b store.Worker) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// forgetLocked removes workers that died longer ago than the retention time, and the oldest beyond
// the maximum.
func (r *Roster) forgetLocked(now time.Time) {
	var dead []string
	for name, e := range r.workers {
		switch {
		case !e.until.Add(store.KeepWorker).After(now):
			delete(r.workers, name)
		case !e.until.After(now):
			dead = append(dead, name)
		}
	}
	if len(dead) <= store.MaxDeadWorkers {
		return
	}
	slices.SortFunc(dead, func(a, b string) int {
		return cmp.Or(r.workers[a].until.Compare(r.workers[b].until), cmp.Compare(a, b))
	})
	for _, name := range dead[:len(dead)-store.MaxDeadWorkers] {
		delete(r.workers, name)
	}
}
