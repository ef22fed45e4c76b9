package tour

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
)

// ledger knows which records were sent, acknowledged and seen. The producers
// number the records of each partition from 0 on and write the number into the
// value. What was acknowledged must be seen once, where the acknowledgement said,
// and nothing before a lower number. A record that its producer has given up may
// be in the log or not: it counts as failed, and spoils nothing else.
type ledger struct {
	topics map[string][]partitionLedger
}

type partitionLedger struct {
	mu     sync.Mutex
	sent   uint64
	places []int64         // by number: its offset as the first to know it said, -1 not known
	acked  numberSet       // numbers
	times  []time.Duration // by offset: when the acknowledgement came, since the drive's start; 0 not yet
	acks   uint64
	failed uint64

	seen       numberSet
	seenCount  uint64
	next       uint64 // one above the highest seen
	duplicated uint64
	outOfOrder uint64
	unasked    uint64 // seen, but never sent
	misplaced  uint64 // said to be at one offset, and at another
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
	p.places = append(p.places, -1)
	return n
}

// ack notes that the producer of record n was told its offset.
func (p *partitionLedger) ack(n uint64, offset int64, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placeLocked(n, offset)
	p.acked.add(n)
	p.acks++
	for int64(len(p.times)) <= offset {
		p.times = append(p.times, 0)
	}
	if offset >= 0 {
		p.times[offset] = at
	}
}

// fail notes that its producer has given a record up. It reports whether that is the
// partition's first.
func (p *partitionLedger) fail() (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
	return p.failed == 1
}

// ackedAt is when the record at an offset was acknowledged, 0 if it is not yet.
func (p *partitionLedger) ackedAt(offset int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset >= int64(len(p.times)) {
		return 0
	}
	return p.times[offset]
}

// placeLocked compares an offset that somebody names for record n with that
// which others have named. It is false for a record that was never sent.
func (p *partitionLedger) placeLocked(n uint64, offset int64) bool {
	if n >= p.sent {
		p.unasked++
		return false
	}
	if p.places[n] == -1 {
		p.places[n] = offset
	}
	if p.places[n] != offset || offset < 0 {
		p.misplaced++
	}
	return true
}

// see notes that a consumer was given record n at an offset.
func (p *partitionLedger) see(n uint64, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.placeLocked(n, offset):
		return
	case !p.seen.add(n):
		p.duplicated++
		return
	case n < p.next:
		p.outOfOrder++
	}
	p.seenCount++
	p.next = max(p.next, n+1)
}

// place notes an offset that somebody else was given record n at.
func (p *partitionLedger) place(n uint64, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placeLocked(n, offset)
}

// missing is how many of the acknowledged records are not in a set.
func (p *partitionLedger) missing(seen numberSet) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked.without(seen)
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

// without is how many numbers of s are not in the other set.
func (s numberSet) without(other numberSet) (n uint64) {
	for i, word := range s {
		if i < len(other) {
			word &^= other[i]
		}
		n += uint64(bits.OnesCount64(word))
	}
	return n
}

// sums are a ledger's totals. Lost is what was acknowledged and not seen.
type sums struct {
	sent, acked, failed, seen, lost, duplicated, outOfOrder, unasked, misplaced uint64
}

func (l *ledger) sums() (s sums) {
	for _, partitions := range l.topics {
		for i := range partitions {
			p := &partitions[i]
			p.mu.Lock()
			s.sent += p.sent
			s.acked += p.acks
			s.failed += p.failed
			s.seen += p.seenCount
			s.lost += p.acked.without(p.seen)
			s.duplicated += p.duplicated
			s.outOfOrder += p.outOfOrder
			s.unasked += p.unasked
			s.misplaced += p.misplaced
			p.mu.Unlock()
		}
	}
	return s
}

// waitFor returns when the totals are as they should be, when ctx ends, or after the
// timeout.
func (l *ledger) waitFor(ctx context.Context, timeout time.Duration, done func(sums) bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !done(l.sums()) && fault.Sleep(ctx, 5*time.Millisecond) {
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
