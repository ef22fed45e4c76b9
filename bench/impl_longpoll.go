package main

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
)

var longpollRival = rival{
	name:      "longpoll",
	setup:     "limbo's longpoll on a Purgatory[string], over HTTP/1.1, a connection for each poll; the server in a process of its own",
	workloads: []string{"W15"},
	maxSize:   pollsAllowed, maxReason: pollsReason,
	bytes: httpPollBytes,
	run:   func(j Job) (Result, error) { return httpPolls(j, "longpoll", 1) },
}

var longpollHTTP2Rival = rival{
	name:      "longpoll-h2",
	setup:     "the same over HTTP/2 without TLS, at most 1,000 polls on a connection",
	workloads: []string{"W15"},
	maxSize:   pollsAllowed, maxReason: pollsReason,
	bytes: httpPollBytes,
	run:   func(j Job) (Result, error) { return httpPolls(j, "longpoll", 2) },
}

// longpollHolder does the same as longpoll.Wait, with a longer maximum wait: only an event
// answers a poll.
type longpollHolder struct {
	polls *longpoll.Polls
	held  *purgatory.Purgatory[string]
}

func openLongpollHolder() (pollHolder, error) {
	polls, err := longpoll.New(longpoll.Options{MaxWait: 2 * pollWait})
	if err != nil {
		return nil, err
	}
	held, err := purgatory.New[string](purgatory.Options{})
	return longpollHolder{polls, held}, err
}

func (h longpollHolder) wait(w http.ResponseWriter, r *http.Request, k *pollKey) bool {
	return h.polls.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return h.held.Await(ctx, timeout, func() bool { return k.event.Load() != 0 }, k.name)
	})
}

func (h longpollHolder) wake(k *pollKey) { h.held.CheckAndComplete(k.name) }
func (h longpollHolder) parked() int     { return h.held.Len() }
func (h longpollHolder) close() error    { return h.held.Shutdown(context.Background()) }
