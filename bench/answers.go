package main

import (
	"fmt"
	"sync"
	"time"
)

// responseTimeout limits the wait for any response except that of a parked poll.
const responseTimeout = 30 * time.Second

// responses collects the responses to parked polls, in the order in which they were read.
type responses struct {
	received chan response
	readers  sync.WaitGroup
}

// response is the response that was read for a poll, or the error.
type response struct {
	poll int
	at   time.Time // when the read completed
	body []byte
	err  error
}

func newResponses(polls int) *responses { return &responses{received: make(chan response, 2*polls)} }

// read starts a goroutine that calls next for each further response to the poll, until next
// returns an error.
func (as *responses) read(poll int, next func() ([]byte, error)) {
	as.readers.Go(func() {
		for {
			body, err := next()
			as.received <- response{poll, time.Now(), body, err}
			if err != nil {
				return
			}
		}
	})
}

// await waits for the response to a poll that was woken. A response to another poll is an error.
func (as *responses) await(poll int) (response, error) {
	select {
	case got := <-as.received:
		switch {
		case got.err != nil:
			return got, fmt.Errorf("poll %d: %w", got.poll, got.err)
		case got.poll != poll:
			return got, fmt.Errorf("poll %d is answered, and poll %d was woken", got.poll, poll)
		}
		return got, nil
	case <-time.After(responseTimeout):
		return response{}, fmt.Errorf("poll %d was woken, and is not answered after %v", poll, responseTimeout)
	}
}
