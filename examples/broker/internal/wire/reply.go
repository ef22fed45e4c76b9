package wire

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reply is the place of one answer in its connection's queue. Requests are
// answered in the order they came, but they are ready in any order: a produce
// pipelined behind a parked fetch is done long before it. So each request takes
// its place when it is read, and who sends does so from the head for as long as
// the head is ready.
//
// What waits in the queue is not the answer's bytes but how to make them: build
// runs where it is sent, when the answer's turn has come. A fetch thus
// reads the log as late as possible, and a client that reads slowly holds up one
// encoded answer, not sixty-four.
//
// An answer is sent by the reader, if it is ready when its request has been handled; by who
// gives it, if it is short and given right after the event that allows it, for a goroutine
// more on the way would cost as much as all the rest. All others, and what is ready behind
// it, are sent by a goroutine that ends when nothing is ready. Nobody but such a goroutine
// waits for a client's network, or makes the answers of others.
type Reply struct {
	conn        *Conn
	correlation int32
	size        int // see queuedSize

	// The rest is guarded by conn.mu until the reply has left the queue.

	build   func() kmsg.Response // nil until answered
	woken   time.Time            // when what completed the parked request happened; zero: it was not parked for it
	dropped bool                 // the client is gone: nobody is owed this answer
}

// Answer hands in how to build the answer. To answer twice is a bug of this
// broker and panics: the second answer could only go to another request.
func (r *Reply) Answer(build func() kmsg.Response) { r.answer(build, time.Time{}, false) }

// AnswerWoken is Answer for a parked request that something at the given time has
// completed: how long the answer takes from there is measured. If it is short, and that time
// not long ago, build is called here: the caller holds no lock that build takes.
func (r *Reply) AnswerWoken(build func() kmsg.Response, woken time.Time, short bool) {
	r.answer(build, woken, short && time.Since(woken) < sendHere)
}

func (r *Reply) answer(build func() kmsg.Response, woken time.Time, here bool) {
	c := r.conn
	c.mu.Lock()
	if r.build != nil || r.dropped {
		c.mu.Unlock()
		panic("broker: request answered twice")
	}
	r.build, r.woken = build, woken
	sends := r != c.handling && c.beginSendingLocked()
	c.mu.Unlock()
	if sends {
		c.send(here)
	}
}

// Now answers with what is known already.
func (r *Reply) Now(resp kmsg.Response) { r.Answer(func() kmsg.Response { return resp }) }

// Drop ends a request without an answer, and its connection. Like Answer, it is called
// at most once.
func (r *Reply) Drop() {
	c := r.conn
	c.mu.Lock()
	answered := r.build != nil || r.dropped
	r.dropped = true
	c.mu.Unlock()
	if answered {
		panic("broker: request dropped after it was answered")
	}
	c.leave()
}
