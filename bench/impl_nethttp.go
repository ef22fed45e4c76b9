package main

import (
	"net/http"
	"sync/atomic"
)

// W15's control: the cost of net/http alone.
var netHTTPRival = rival{
	name:      "net/http",
	setup:     "longpoll's server, whose handlers wait on a channel each, without a timeout: what net/http takes by itself",
	workloads: []string{"W15"},
	maxSize:   pollsAllowed, maxReason: pollsReason,
	bytes: httpPollBytes,
	run:   func(j Job) (Result, error) { return httpPolls(j, "net/http", 1) },
}

var netHTTP2Rival = rival{
	name:      "net/http-h2",
	setup:     "the same over HTTP/2 without TLS",
	workloads: []string{"W15"},
	maxSize:   pollsAllowed, maxReason: pollsReason,
	bytes: httpPollBytes,
	run:   func(j Job) (Result, error) { return httpPolls(j, "net/http", 2) },
}

// channelHolder counts waiting polls, and does nothing else.
type channelHolder struct{ n atomic.Int64 }

func openChannelHolder() (pollHolder, error) { return new(channelHolder), nil }

func (h *channelHolder) wait(_ http.ResponseWriter, r *http.Request, k *pollKey) bool {
	select {
	case <-k.ready: // not counted, as with longpoll
		return true
	default:
	}
	h.n.Add(1)
	defer h.n.Add(-1)
	select {
	case <-k.ready:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (h *channelHolder) wake(k *pollKey) { k.ready <- struct{}{} }
func (h *channelHolder) parked() int     { return int(h.n.Load()) }
func (h *channelHolder) close() error    { return nil }
