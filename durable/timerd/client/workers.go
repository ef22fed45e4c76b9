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
	Name      string    `json:"name"`
	Live      bool      `json:"live"`      // its heartbeats arrive
	Heartbeat time.Time `json:"heartbeat"` // the last one, by the clock of timerd's store
	Since     time.Time `json:"since"`     // when the worker began, by the same clock

	Slots           int `json:"slots"`            // maximum number of concurrent attempts
	Running         int `json:"running"`          // attempts in progress
	PreferredShards int `json:"preferred_shards"` // shards from which it claims first

	// These are counts since the worker began.
	Done         uint64 `json:"done"`          // attempts that succeeded
	Retried      uint64 `json:"retried"`       // attempts that failed and will be repeated
	Snoozed      uint64 `json:"snoozed"`       // postponed attempts, which do not count
	DeadLettered uint64 `json:"dead_lettered"` // timers that became dead letters
	Cancelled    uint64 `json:"cancelled"`

	Late Lateness `json:"late"`
}

// Lateness is how late attempts began after the due time, in seconds, rounded up to the next power
// of two.
type Lateness struct {
	Count uint64  `json:"count"`       // attempts
	P50   float64 `json:"p50_seconds"` // half of the attempts were no later
	P99   float64 `json:"p99_seconds"` // 99 % of the attempts were no later
}

type workerList struct {
	Workers []WorkerInfo `json:"workers"`
}

func (l *workerList) valid() bool { return l.Workers != nil }

// Workers returns the workers of all processes that share timerd's store, by name: the live ones
// and, for an hour, those that died without leaving; at most a thousand of the latter.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	var l workerList
	if _, err := c.call(ctx, request{method: http.MethodGet, path: "/workers", kind: readOnly}, &l); err != nil {
		return nil, err
	}
	return l.Workers, nil
}
