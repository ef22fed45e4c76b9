package main

import (
	"fmt"
	"sync"
	"time"
)

// answerLimit bounds the wait for any answer but a parked one.
const answerLimit = 30 * time.Second

// answers are those to parked polls, in the order in which they were read.
type answers struct {
	came    chan answer
	readers sync.WaitGroup
}

// answer is what was read for a poll, or the error.
type answer struct {
	poll int
	at   time.Time // when it had been read
	body []byte
	err  error
}

func newAnswers(polls int) *answers { return &answers{came: make(chan answer, 2*polls)} }

// read starts a goroutine that calls next for one answer to the poll after the other, until
// it returns an error.
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

// of waits for the answer to a poll that was woken. An answer to another one is an error.
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
