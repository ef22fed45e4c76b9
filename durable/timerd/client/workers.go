package client

import (
	"context"
	"net/http"
	"time"
)

// WorkerInfo describes a worker of any process that shares timerd's store, as of its last
// heartbeat. Workers send heartbeats every tenth of their lease, and at least once a second. If a
// worker of another version sends other data, only Name, Live and Heartbeat are known.
type WorkerInfo struct {
	Name      string
	Live      bool      // its heartbeats arrive
	Heartbeat time.Time // the last one, by the clock of timerd's store
	Since     time.Time // when the worker began, by the same clock

	Slots           int // maximum number of concurrent attempts
	Running         int // attempts in progress
	PreferredShards int // shards from which it claims first

	// These are counts since the worker began.
	Done         uint64 // attempts that succeeded
	Retried      uint64 // attempts that failed and will be repeated
	Snoozed      uint64 // postponed attempts, which do not count
	DeadLettered uint64 // timers that became dead letters
	Cancelled    uint64

	Late Lateness
}

// Lateness is how late attempts began after the due time, in seconds, rounded up to the next power
// of two.
type Lateness struct {
	Count uint64  // attempts
	P50   float64 // half of the attempts were no later
	P99   float64 // 99 % of the attempts were no later
}

// Workers returns the workers of all processes that share timerd's store, by name: the live ones
// and, for an hour, those that died without leaving; at most a thousand of the latter.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	var workers []WorkerInfo
	_, err := c.call(ctx, request{method: http.MethodGet, path: "/workers", kind: readOnly}, into(&workers, (*reader).workers))
	return workers, err
}
