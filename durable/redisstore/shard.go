package redisstore

import (
	"context"
	"fmt"
)

// kind distinguishes the requests whose replies are kept.
type kind uint8

const (
	scheduling kind = iota
	cancelling
	rescheduling
	requeueing
	purging
	ending
	kinds
)

// suffixes end the names of a shard's keys, in the order in which common.lua takes them.
var suffixes = [...]string{":w0", ":w1", ":w2", ":w3", ":l", ":b", ":B", ":r", ":n", ":d", ":m"}

// shard has the names of a shard's keys, and the numbers of this client's requests.
type shard struct {
	tag     string // {namespace:shard}
	channel string
	names   [len(suffixes)]string
	logs    [kinds]string
	lines   [kinds]line
}

// line lets one request of a kind to a shard be under way: the script keeps one reply.
type line struct {
	turn   chan struct{} // holds a value while a request is under way
	number uint64        // of the last request; whoever has the turn may change it
}

func newShard(namespace string, n int, client string) *shard {
	sh := &shard{tag: fmt.Sprintf("{%s:%d}", namespace, n)}
	sh.channel = sh.tag + ":e"
	for i, s := range suffixes {
		sh.names[i] = sh.tag + s
	}
	for k := range sh.lines {
		sh.logs[k] = fmt.Sprintf("%s:p:%s:%d", sh.tag, client, k)
		sh.lines[k].turn = make(chan struct{}, 1)
	}
	return sh
}

// keys returns the names that every script about the shard takes.
func (sh *shard) keys(log string) []string {
	return append(sh.names[:len(sh.names):len(sh.names)], log)
}

// next waits for the turn of a kind, and returns the number of the request.
func (sh *shard) next(ctx context.Context, k kind) (uint64, error) {
	l := &sh.lines[k]
	select {
	case l.turn <- struct{}{}:
		l.number++
		return l.number, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (sh *shard) done(k kind) { <-sh.lines[k].turn }
