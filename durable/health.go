package durable

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// health logs when the engine stops answering and when it answers again: once for each change, not
// for each failure.
type health struct {
	log     *slog.Logger
	mu      sync.Mutex
	failing map[engineCall]bool // guarded by mu
}

// engineCall identifies calls that fail and succeed together.
type engineCall struct {
	name  string
	shard int // -1: of no shard
}

func (h *health) report(name string, shard int, err error) {
	call := engineCall{name, shard}
	h.mu.Lock()
	was := h.failing[call]
	switch {
	case was == (err != nil):
	case err != nil:
		if h.failing == nil {
			h.failing = make(map[engineCall]bool)
		}
		h.failing[call] = true
	default:
		delete(h.failing, call)
	}
	h.mu.Unlock()
	if was == (err != nil) {
		return
	}
	args := []any{"call", name}
	if shard >= 0 {
		args = append(args, "shard", shard)
	}
	if err != nil {
		h.log.Warn("durable: calls to the engine fail", append(args, "error", err)...)
	} else {
		h.log.Info("durable: calls to the engine succeed again", args...)
	}
}

// applied reports whether the engine has applied the change of a call that returned err.
func applied(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// minPause and maxPause bound the pauses after engine failures.
const (
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
)

// pause returns how long to wait after a number of failures in a row: half fixed, half random, so
// that callers that failed together do not retry together.
func pause(failures int) time.Duration {
	d := double(minPause, maxPause, failures)
	return d/2 + rand.N(d/2+1)
}

// backoff returns how long to wait after a number of failed attempts: a random time from 0 to the
// full backoff ("full jitter", Brooker, AWS Architecture Blog, 2015).
func backoff(base, most time.Duration, failures int) time.Duration {
	return rand.N(double(base, most, failures) + 1)
}

// double returns base doubled for each failure after the first, at most most.
func double(base, most time.Duration, failures int) time.Duration {
	for ; failures > 1 && base < most; failures-- {
		base = min(base, most/2+1) * 2
	}
	return min(base, most)
}
