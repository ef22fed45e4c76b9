package main

import (
	"encoding/binary"
	"sync"
	"time"
)

// ledger knows which records were sent, acknowledged and seen. The producers
// number the records of each partition from 0 on and write the number into the
// value; each number must be seen once, and none before a lower one.
type ledger struct {
	topics map[string][]partitionLedger
}

type partitionLedger struct {
	mu    sync.Mutex
	sent  uint64
	acked []time.Duration // by number: when its acknowledgement came, since the drive's start; 0 not yet
	acks  uint64

	seen       numberSet
	seenCount  uint64
	next       uint64 // one above the highest seen
	duplicated uint64
	outOfOrder uint64
	unasked    uint64 // seen, but never sent
}

func newLedger(partitions map[string]int) *ledger {
	l := &ledger{topics: map[string][]partitionLedger{}}
	for topic, n := range partitions {
		l.topics[topic] = make([]partitionLedger, n)
	}
	return l
}

func (l *ledger) partition(topic string, index int32) *partitionLedger {
	return &l.topics[topic][index]
}

// send takes the next number.
func (p *partitionLedger) send() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.sent
	p.sent++
	p.acked = append(p.acked, 0)
	return n
}

func (p *partitionLedger) ack(n uint64, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked[n] = at
	p.acks++
}

// ackedAt is when record n was acknowledged, 0 if it is not yet.
func (p *partitionLedger) ackedAt(n uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= uint64(len(p.acked)) {
		return 0
	}
	return p.acked[n]
}

// see notes that a consumer was given record n.
func (p *partitionLedger) see(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= p.sent {
		p.unasked++
		return
	}
	switch {
	case !p.seen.add(n):
		p.duplicated++
		return
	case n < p.next:
		p.outOfOrder++
	}
	p.seenCount++
	p.next = max(p.next, n+1)
}

// numberSet is a set of numbers that are dense from 0 on.
type numberSet []uint64

// add is false for a number that is in already.
func (s *numberSet) add(n uint64) bool {
	word, bit := n/64, uint64(1)<<(n%64)
	for uint64(len(*s)) <= word {
		*s = append(*s, 0)
	}
	if (*s)[word]&bit != 0 {
		return false
	}
	(*s)[word] |= bit
	return true
}

// sums are a ledger's totals.
type sums struct {
	sent, acked, seen, lost, duplicated, outOfOrder, unasked uint64
}

func (l *ledger) sums() (s sums) {
	for _, partitions := range l.topics {
		for i := range partitions {
			p := &partitions[i]
			p.mu.Lock()
			s.sent += p.sent
			s.acked += p.acks
			s.seen += p.seenCount
			s.duplicated += p.duplicated
			s.outOfOrder += p.outOfOrder
			s.unasked += p.unasked
			// Sent but not acknowledged would be lost, too: nothing in this drive
			// gives a producer a reason to fail.
			s.lost += p.sent - p.seenCount
			p.mu.Unlock()
		}
	}
	return s
}

// waitComplete returns when everything sent was seen, or after the timeout.
func (l *ledger) waitComplete(timeout time.Duration) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s := l.sums(); s.lost == 0 && s.acked == s.sent {
			return
		}
	}
}

// recordValue is the number and some ballast.
func recordValue(n uint64) []byte {
	v := make([]byte, 100)
	binary.BigEndian.PutUint64(v, n)
	return v
}

func recordNumber(value []byte) (uint64, bool) {
	if len(value) < 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(value), true
}
