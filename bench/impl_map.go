package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

var mapRival = rival{
	name:      "map",
	setup:     "a map under a mutex, with time.AfterFunc and a channel for each request, as a careful hand writes it",
	workloads: []string{"W14"},
	bytes:     600,
	run: func(j Job) (Result, error) {
		r := &mapOfRequests{waiting: map[uint64]*mapRequest{}}
		defer r.close()
		return inFlight(j, r)
	},
}

// mapOfRequests implements the part of calls.Table that W14 uses: no groups, no bound and no
// statistics. The goroutine that removes a request from the map ends it.
type mapOfRequests struct {
	mu      sync.Mutex
	waiting map[uint64]*mapRequest // guarded by mu
}

type mapRequest struct {
	result chan mapResult // capacity 1
	timer  *time.Timer    // set before mu is unlocked
}

type mapResult struct {
	value uint64
	err   error
}

var (
	errMapExpired   = errors.New("expired")
	errMapDuplicate = errors.New("an id that is in use")
)

func (m *mapOfRequests) begin(id uint64, timeout time.Duration) (*mapRequest, error) {
	r := &mapRequest{result: make(chan mapResult, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[id] != nil {
		return nil, errMapDuplicate
	}
	m.waiting[id] = r
	r.timer = time.AfterFunc(timeout, func() {
		if m.take(id, r) {
			r.result <- mapResult{err: errMapExpired}
		}
	})
	return r, nil
}

func (m *mapOfRequests) do(ctx context.Context, id uint64, timeout time.Duration, send func() error) (uint64, error) {
	r, err := m.begin(id, timeout)
	if err != nil {
		return 0, err
	}
	defer r.timer.Stop()
	if err := send(); err != nil && m.take(id, r) {
		return 0, err
	}
	select {
	case got := <-r.result:
		return got.value, got.err
	case <-ctx.Done():
		if m.take(id, r) {
			return 0, context.Cause(ctx)
		}
		got := <-r.result
		return got.value, got.err
	}
}

// take removes a request from the map, and reports whether it was still there.
func (m *mapOfRequests) take(id uint64, r *mapRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[id] != r {
		return false
	}
	delete(m.waiting, id)
	return true
}

func (m *mapOfRequests) reply(id, value uint64) bool {
	m.mu.Lock()
	r := m.waiting[id]
	delete(m.waiting, id)
	m.mu.Unlock()
	if r == nil {
		return false
	}
	r.result <- mapResult{value: value}
	return true
}

func (m *mapOfRequests) hold(id uint64, timeout time.Duration) error {
	_, err := m.begin(id, timeout)
	return err
}

func (m *mapOfRequests) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.waiting {
		r.timer.Stop()
	}
}
