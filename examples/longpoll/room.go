package main

import "sync"

// event is a message published in a room.
type event struct {
	Offset int64  `json:"offset"` // its position in the room: increasing, with gaps
	Text   string `json:"text"`
	Node   int    `json:"node"` // that published it
	Sent   int64  `json:"sent"` // microseconds since 1970
}

// rooms holds the events that a node has read from the bus. Every node reads the whole bus, and so
// has the same events in the same order, at the same offsets.
type rooms struct {
	maxEvents int

	mu     sync.RWMutex
	byName map[string][]event // guarded by mu: by offset
	order  []string           // guarded by mu: the room of each event, the oldest first
}

// maxEvents is the number of events that a node keeps.
const maxEvents = 100_000

func newRooms() *rooms { return &rooms{maxEvents: maxEvents, byName: map[string][]event{}} }

func (r *rooms) add(room string, e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[room] = append(r.byName[room], e)
	r.order = append(r.order, room)
	if len(r.order) <= r.maxEvents {
		return
	}
	oldest := r.order[0]
	r.order = r.order[1:]
	if left := r.byName[oldest][1:]; len(left) > 0 {
		r.byName[oldest] = left
	} else {
		delete(r.byName, oldest)
	}
}

// has reports whether a room has events from an offset on.
func (r *rooms) has(room string, from int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	events := r.byName[room]
	return len(events) > 0 && events[len(events)-1].Offset >= from
}

// from returns a room's events from an offset on.
func (r *rooms) from(room string, from int64) (list []event) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, e := range r.byName[room] {
		if e.Offset >= from {
			list = append(list, e)
		}
	}
	return list
}
