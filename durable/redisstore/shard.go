package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
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
	claiming
	swapping
	kinds
)

// suffixes end the names of a shard's keys, in the order in which common.lua takes them; the
// client's log follows.
var suffixes = [...]string{":w0", ":w1", ":w2", ":w3", ":l", ":b", ":B", ":r", ":n", ":d", ":m", ":w4", ":i", ":h"}

// shard has the names of a shard's keys, and the numbers of this client's requests.
type shard struct {
	tag     string // {namespace:shard}
	channel string
	names   []string
	clock   serverClock
	turns   [kinds]chan struct{} // each holds a value while a request of the kind is in flight

	mu   sync.Mutex
	last uint64        // number given out
	open [kinds]uint64 // numbers whose calls have not returned; 0: none
}

func newShard(namespace string, n int, client string) *shard {
	sh := &shard{tag: fmt.Sprintf("{%s:%d}", namespace, n)}
	sh.channel = sh.tag + ":e"
	for _, s := range suffixes {
		sh.names = append(sh.names, sh.tag+s)
	}
	sh.names = append(sh.names, sh.tag+":p:"+client)
	for k := range sh.turns {
		sh.turns[k] = make(chan struct{}, 1)
	}
	return sh
}

// order tells a script whether a request may still take effect: its number among this client's
// requests to the shard, and the numbers of the others whose calls had not returned when it was
// given out. Zero: the request is not numbered.
type order struct {
	number uint64
	open   string // "," or, with a comma before and after each, the numbers; empty: none
}

// text is the argument that the scripts take, with the deadline by the server's clock.
func (o order) text(deadline store.Millis) string {
	var buf [64]byte
	b := buf[:0]
	if o.number != 0 {
		b = append(strconv.AppendUint(b, o.number, 10), ' ')
	}
	b = strconv.AppendInt(b, int64(deadline), 10)
	return string(append(b, o.open...))
}

// begin waits for the turn of a kind, and numbers the request. The script keeps one reply of each
// kind, so at most one request of each is in flight.
func (sh *shard) begin(ctx context.Context, k kind) (order, error) {
	select {
	case sh.turns[k] <- struct{}{}:
	case <-ctx.Done():
		return order{}, ctx.Err()
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.last++
	o := order{number: sh.last}
	for _, n := range sh.open {
		if n != 0 {
			if o.open == "" {
				o.open = ","
			}
			o.open += strconv.FormatUint(n, 10) + ","
		}
	}
	sh.open[k] = sh.last
	return o, nil
}

// end records that the call of a request has returned: once a later request arrives, the scripts
// refuse this one.
func (sh *shard) end(k kind) {
	sh.mu.Lock()
	sh.open[k] = 0
	sh.mu.Unlock()
	<-sh.turns[k]
}

// serverClock is a lower bound of a server's clock: the time that it sent last, and when that was
// received. A clock that goes back makes it too high until the next reply. Before the first reply
// it is 0, so that the server refuses a request by its deadline, and sends its time.
type serverClock struct {
	mu       sync.Mutex
	sent     store.Millis // 0: nothing was received
	received time.Time
}

// observe records the time in a reply that has just arrived.
func (c *serverClock) observe(sent store.Millis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.received = sent, time.Now()
}

// at returns the earliest time that the server's clock can show at t.
func (c *serverClock) at(t time.Time) store.Millis {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == 0 {
		return 0
	}
	return c.sent + store.Millis(t.Sub(c.received)/time.Millisecond)
}
