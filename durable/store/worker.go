package store

import (
	"fmt"
	"time"
)

const (
	// KeepWorker is how long a worker whose heartbeat has expired stays listed.
	KeepWorker = time.Hour
	// MaxDeadWorkers is the maximum number of listed workers whose heartbeats have expired. Beyond
	// it, those whose heartbeats expired first are removed.
	MaxDeadWorkers = 1000
)

// Heartbeat announces that a worker is live.
type Heartbeat struct {
	Worker string        // its name, unique in the store
	TTL    time.Duration // how long it counts as live; 0: it leaves
	Status []byte        // shown by Workers; the engine does not interpret it
}

// Check refuses a heartbeat that is out of bounds.
func (h Heartbeat) Check() error {
	switch {
	case len(h.Worker) < 1 || len(h.Worker) > MaxWorker:
		return fmt.Errorf("durable: a worker's name is %d bytes long, must be 1 to %d", len(h.Worker), MaxWorker)
	case h.TTL < 0 || h.TTL > MaxLease:
		return fmt.Errorf("durable: Heartbeat.TTL of %s is %v, must be 0 to %v", quote(h.Worker), h.TTL, MaxLease)
	case len(h.Status) > MaxStatus:
		return fmt.Errorf("durable: the status of worker %s is %d bytes long, must be at most %d", quote(h.Worker), len(h.Status), MaxStatus)
	}
	return nil
}

// Worker is a worker that has sent heartbeats and has not left.
type Worker struct {
	Name      string
	Live      bool   // its heartbeat has not expired
	Heartbeat Millis // when the last one arrived
	Status    []byte // of the last one
}
