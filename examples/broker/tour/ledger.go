package tour

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
)

// ledger records which records were sent, acknowledged and seen. The producers number the records
// of each partition from 0 and write the number into the value. An acknowledged record must be seen
// exactly once, at the acknowledged offset, and not after a higher number. A record that its
// producer gave up on may or may not be in the log; it counts as failed, and affects nothing else.
type ledger struct {
	topics map[string][]partitionLedger
}

type partitionLedger struct {
	mu      sync.Mutex
	sent    uint64
	offsets []int64         // offset by number, as first reported; -1 if unknown
	acked   numberSet       // numbers
	times   []time.Duration // by offset: time of the acknowledgement since the drive's start; 0 not yet
	acks    uint64
	failed  uint64

	seen       numberSet
	seenCount  uint64
	next       uint64 // the highest number seen, plus one
	duplicated uint64
	outOfOrder uint64
	neverSent  uint64 // seen, but never sent
	misplaced  uint64 // reported at two offsets
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

// send returns the next number.
func (p *partitionLedger) send() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.sent
	p.sent++
	p.offsets = append(p.offsets, -1)
	return n
}

// ack records that the producer of record n learned its offset.
func (p *partitionLedger) ack(n uint64, offset int64, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkOffsetLocked(n, offset)
	p.acked.add(n)
	p.acks++
	for int64(len(p.times)) <= offset {
		p.times = append(p.times, 0)
	}
	if offset >= 0 {
		p.times[offset] = at
	}
}

// fail records that a producer gave up on a record. It reports whether that is the partition's
// first.
func (p *partitionLedger) fail() (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
	return p.failed == 1
}

// ackedAt returns when the record at an offset was acknowledged, 0 if it is not yet.
func (p *partitionLedger) ackedAt(offset int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset >= int64(len(p.times)) {
		return 0
	}
	return p.times[offset]
}

// checkOffsetLocked compares an offset reported for record n with the one reported before. It
// returns false for a record that was never sent.
func (p *partitionLedger) checkOffsetLocked(n uint64, offset int64) bool {
	if n >= p.sent {
		p.neverSent++
		return false
	}
	if p.offsets[n] == -1 {
		p.offsets[n] = offset
	}
	if p.offsets[n] != offset || offset < 0 {
		p.misplaced++
	}
	return true
}

// see records that a consumer received record n at an offset.
func (p *partitionLedger) see(n uint64, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.checkOffsetLocked(n, offset):
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

// checkOffset records that another reader received record n at an offset.
func (p *partitionLedger) checkOffset(n uint64, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkOffsetLocked(n, offset)
}

// missing returns the number of acknowledged records that are not in a set.
func (p *partitionLedger) missing(seen numberSet) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked.without(seen)
}

// numberSet is a set of numbers, dense from 0 on.
type numberSet []uint64

// add returns false if the set already contains the number.
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

// without returns how many numbers of s are not in other.
func (s numberSet) without(other numberSet) (n uint64) {
	for i, word := range s {
		if i < len(other) {
			word &^= other[i]
		}
		n += uint64(bits.OnesCount64(word))
	}
	return n
}

// sums are a ledger's totals. lost counts records that were acknowledged and not seen.
type sums struct {
	sent, acked, failed, seen, lost, duplicated, outOfOrder, neverSent, misplaced uint64
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
			s.neverSent += p.neverSent
			s.misplaced += p.misplaced
			p.mu.Unlock()
		}
	}
	return s
}

// waitFor returns when done accepts the totals, when ctx ends, or after the timeout.
func (l *ledger) waitFor(ctx context.Context, timeout time.Duration, done func(sums) bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !done(l.sums()) && fault.Sleep(ctx, 5*time.Millisecond) {
	}
}

// recordValue returns the number, padded to 100 bytes.
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
