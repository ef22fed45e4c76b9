package wire

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reply is the slot of one response in its connection's queue. Responses are sent in the order of
// their requests but become ready in any order: a produce pipelined behind a parked fetch finishes
// long before it. So each request is queued when it is read, and the sender sends from the head of
// the queue for as long as the head is ready.
//
// The queue does not hold the response's bytes but a function, build, that makes them when it is
// the response's turn. So a fetch reads the log as late as possible, and a slow client holds up one
// encoded response, not sixty-four.
//
// The reader sends a response that is ready when its request has been handled. The goroutine that
// completes a request sends its response if that is short and soon after the event, because another
// goroutine on the way would double the cost. A temporary goroutine sends all other responses,
// including those ready behind these, and ends when none is ready. Only such goroutines wait for a
// client's network, or build responses to other requests.
type Reply struct {
	conn        *Conn
	correlation int32
	size        int // see queuedSize

	// The following fields are guarded by conn.mu until the reply has left the queue.

	build   func() kmsg.Response // nil until answered
	woken   time.Time            // the time of the event that completed the parked request; zero: not parked
	dropped bool                 // the client has disconnected: this response is not needed
}

// Answer sets the function that builds the response. A second call is a bug of this broker and
// panics: its response could only reach another request.
func (r *Reply) Answer(build func() kmsg.Response) { r.answer(build, time.Time{}, false) }

// AnswerWoken is Answer for a parked request that an event at the given time has completed; the
// latency from that time is measured. If the response is short and the event is recent, it may call
// build itself, so the caller must hold no lock that build takes.
func (r *Reply) AnswerWoken(build func() kmsg.Response, woken time.Time, short bool) {
	r.answer(build, woken, short && time.Since(woken) < inlineWindow)
}

func (r *Reply) answer(build func() kmsg.Response, woken time.Time, inline bool) {
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
		c.send(inline)
	}
}

// Now answers with a response that is already known.
func (r *Reply) Now(resp kmsg.Response) { r.Answer(func() kmsg.Response { return resp }) }

// Drop ends a request without a response, and closes its connection. Like Answer, it is called at
// most once.
func (r *Reply) Drop() {
	c := r.conn
	c.mu.Lock()
	answered := r.build != nil || r.dropped
	r.dropped = true
	c.mu.Unlock()
	if answered {
		panic("broker: request dropped after it was answered")
	}
	c.abort()
}
