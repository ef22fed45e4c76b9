package main

import (
	"fmt"
	"sync"
	"time"
)

// answerLimit limits the wait for any response except that of a parked poll.
const answerLimit = 30 * time.Second

// answers collects the responses to parked polls, in the order in which they were read.
type answers struct {
	came    chan answer
	readers sync.WaitGroup
}

// answer is the response that was read for a poll, or the error.
type answer struct {
	poll int
	at   time.Time // when the read completed
	body []byte
	err  error
}

func newAnswers(polls int) *answers { return &answers{came: make(chan answer, 2*polls)} }

// read starts a goroutine that calls next for each further response to the poll, until next
// returns an error.
func (as *answers) read(poll int, next func() ([]byte, error)) {
	as.readers.Go(func() {
		for {
			body, err := next()
			as.came <- answer{poll, time.Now(), body, err}
			if err != nil {
				return
			}
		}
	})
}

// of waits for the response to a poll that was woken. A response to another poll is an error.
func (as *answers) of(poll int) (answer, error) {
	select {
	case got := <-as.came:
		switch {
		case got.err != nil:
			return got, fmt.Errorf("poll %d: %w", got.poll, got.err)
		case got.poll != poll:
			return got, fmt.Errorf("poll %d is answered, and poll %d was woken", got.poll, poll)
		}
		return got, nil
	case <-time.After(answerLimit):
		return answer{}, fmt.Errorf("poll %d was woken, and is not answered after %v", poll, answerLimit)
	}
}
