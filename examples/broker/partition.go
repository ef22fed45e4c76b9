package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicID is what Fetch 13 and Produce 13 name topics by. It never returns: a
// topic deleted and created again is another one.
type topicID [16]byte

// partitionKey is the purgatory's watch key: fetches wait on the partitions
// they read. The id, not the name, so that nobody waits on a topic's successor.
type partitionKey struct {
	topic topicID
	index int32
}

// partition is one log, its producers, and whether it still exists.
type partition struct {
	key   partitionKey
	topic *topic
	sum   *atomic.Int64 // bytes kept over all partitions

	mu         sync.Mutex
	log        log
	producers  producerStates
	appendedAt time.Time // of the last append
	deleted    bool
}

// appended is what became of a batch.
type appended struct {
	base, logStart int64
	stored         bool // false for a repeated batch, which changes nothing
}

// append stores a batch that parseBatch has passed. It copies raw, for that is
// the connection's buffer. The caller must then CheckAndComplete the key, with
// no lock held.
func (p *partition) append(cfg *config, raw []byte, b *kmsg.RecordBatch) (appended, *kerr.Error) {
	own := make([]byte, len(raw)) // outside the lock
	copy(own, raw)
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted {
		return appended{}, kerr.UnknownTopicOrPartition
	}
	var producer *producerState
	if b.ProducerID >= 0 {
		producer = p.producers[b.ProducerID]
		base, duplicate, err := producer.check(b)
		if err != nil {
			return appended{}, err
		}
		if duplicate {
			producer.usedAt = now
			return appended{base: base, logStart: p.log.start}, nil
		}
		if producer == nil {
			producer = p.producers.add(b.ProducerID, cfg.maxProducers, cfg.producerIdle, now)
		}
	}
	before := p.log.kept
	base := p.log.append(own, b.NumRecords, b.MaxTimestamp)
	if producer != nil {
		producer.take(b, base, now)
	}
	p.log.trim(p.topic.retention)
	p.sum.Add(p.log.kept - before)
	p.appendedAt = now
	return appended{base: base, logStart: p.log.start, stored: true}, nil
}

// state is what a fetch needs to know to decide whether it has waited enough.
type state struct {
	readable   int64 // bytes from the fetch's offset on
	failed     bool  // deleted or out of range: answer now
	appendedAt time.Time
}

func (p *partition) state(offset int64) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{
		readable:   p.log.readable(offset),
		failed:     p.deleted || !p.log.inRange(offset),
		appendedAt: p.appendedAt,
	}
}

// read is one partition's part of a fetch answer.
type read struct {
	start, next int64
	batches     [][]byte
	size        int
	err         *kerr.Error
}

func (p *partition) read(offset int64, limit int, atLeastOne bool) (r read) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted {
		r.start, r.next, r.err = -1, -1, kerr.UnknownTopicOrPartition
		return r
	}
	r.start, r.next = p.log.start, p.log.next
	if !p.log.inRange(offset) {
		r.err = kerr.OffsetOutOfRange
		return r
	}
	r.batches, r.size = p.log.read(offset, limit, atLeastOne)
	return r
}

// free gives back what is above limit; retention over all partitions does this.
func (p *partition) free(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Add(-p.log.trim(limit))
}

func (p *partition) kept() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.kept
}

// remove ends the partition. Whoever calls it then checks the key, so that the
// fetches parked here learn of it.
func (p *partition) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleted = true
	p.sum.Add(-p.log.kept)
	p.log = log{start: p.log.next, next: p.log.next, written: p.log.written}
	p.producers = nil
}
