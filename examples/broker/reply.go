package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reply is the place of one answer in its connection's queue. Requests are
// answered in the order they came, but they are ready in any order: a produce
// pipelined behind a parked fetch is done long before it. So each request takes
// its place when it is read, and the writer sends from the head for as long as
// the head is ready.
//
// What waits in the queue is not the answer's bytes but how to make them: build
// runs on the connection's writer when the answer's turn has come. A fetch thus
// reads the log as late as possible, and a client that reads slowly holds up one
// encoded answer, not sixty-four.
type reply struct {
	conn        *conn
	correlation int32
	size        int // see queuedSize

	// The rest is guarded by conn.mu until the reply has left the queue.

	build    func() kmsg.Response // nil until answered
	appended time.Time            // when the append happened that woke this fetch; else zero
	dropped  bool                 // the client is gone: nobody is owed this answer
}

// answer hands in how to build the answer. To answer twice is a bug of this
// broker and panics: the second answer could only go to another request.
func (r *reply) answer(build func() kmsg.Response) { r.answerWoken(build, time.Time{}) }

// answerWoken is answer for a fetch that an append at the given time completed.
func (r *reply) answerWoken(build func() kmsg.Response, appended time.Time) {
	c := r.conn
	c.mu.Lock()
	if r.build != nil || r.dropped {
		c.mu.Unlock()
		panic("broker: request answered twice")
	}
	r.build, r.appended = build, appended
	c.mu.Unlock()
	c.wakeWriter()
}

// now answers with what is known already.
func (r *reply) now(resp kmsg.Response) { r.answer(func() kmsg.Response { return resp }) }

// drop ends a request without an answer: the connection is gone. Like answer, it is
// called at most once.
func (r *reply) drop() {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.build != nil || r.dropped {
		panic("broker: request dropped after it was answered")
	}
	r.dropped = true
}
