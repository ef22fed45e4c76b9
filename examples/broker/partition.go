package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partition is one broker's replica of a partition: its log, its producers, and
// its role. What a leader does besides is in isr.go, what a follower does in
// follower.go.
type partition struct {
	key partitionKey
	id  int32         // of the broker
	sum *atomic.Int64 // bytes kept in all of the broker's logs

	mu        sync.Mutex
	topic     *topic
	log       log
	producers producerStates
	hw        int64      // high watermark: below it every in-sync replica has everything
	assigned  assignment // the newest this broker knows of
	leading   bool
	closed    bool // the topic is deleted, or the broker has stopped

	appendedAt  time.Time // of the last append
	committedAt time.Time // when the high watermark last rose

	// Of a leader.
	maximal   []int32 // in sync, or about to be: an ISR asked for counts before it is granted
	followers map[int32]*follower
}

// stored is what of a replica outlives its broker's restart.
type stored struct {
	log log
	hw  int64
}

func newPartition(cfg *config, key partitionKey, id int32, sum *atomic.Int64, found stored) *partition {
	p := &partition{key: key, id: id, sum: sum, log: found.log, hw: found.hw, assigned: assignment{version: -1, epoch: -1, leader: noLeader}}
	p.rebuildProducers(cfg)
	sum.Add(p.log.kept)
	return p
}

// turn is what a new assignment has changed.
type turn struct {
	lost   int32 // the epoch of a reign that ended here, -1 for none
	begun  int32 // the epoch of one that begins, -1 for none
	raised bool  // the high watermark rose
}

// assign takes what the controller has decided. An older decision than the one
// known changes nothing.
func (p *partition) assign(t *topic, a assignment, now time.Time) turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := turn{lost: -1, begun: -1}
	if p.closed || a.version <= p.assigned.version {
		return done
	}
	p.topic = t
	another := a.epoch != p.assigned.epoch
	if p.leading && (another || a.leader != p.id) {
		done.lost = p.assigned.epoch
	}
	p.assigned = a
	p.leading = a.leader == p.id
	switch {
	case !p.leading:
		p.followers, p.maximal = nil, nil
	case another:
		done.begun = a.epoch
		p.maximal = a.isr
		p.followers = map[int32]*follower{}
		for _, id := range without(a.replicas, p.id) {
			p.followers[id] = &follower{end: -1, start: -1, caughtUp: now}
		}
		done.raised = p.raiseLocked(now)
	default:
		p.maximal = a.isr
		done.raised = p.raiseLocked(now)
	}
	return done
}

// leadsLocked reports whether this replica may answer for the partition to someone
// who believes in the given epoch (-1: does not know).
func (p *partition) leadsLocked(believed int32) *kerr.Error {
	switch {
	case p.closed:
		return kerr.UnknownTopicOrPartition
	case !p.leading:
		return kerr.NotLeaderForPartition
	}
	return checkEpoch(believed, p.assigned.epoch)
}

// appended is what became of a batch.
type appended struct {
	base, end, logStart int64
	epoch               int32
	stored              bool // false for a repeated batch, which changes nothing
	raised              bool // the high watermark rose at once: there is no other replica
}

// append stores a batch that parseBatch has passed. It copies raw, for that is
// the connection's buffer. With all, there must be as many in-sync replicas as
// the topic asks for. The caller then tells those who wait, with no lock held:
// see server.append.
func (p *partition) append(cfg *config, raw []byte, b *kmsg.RecordBatch, all bool) (appended, *kerr.Error) {
	own := slices.Clone(raw) // outside the lock
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(-1); err != nil {
		return appended{}, err
	}
	if all && len(p.assigned.isr) < int(p.topic.minISR) || p.uncommittedLocked() > cfg.maxUncommitted {
		return appended{}, kerr.NotEnoughReplicas
	}
	done := appended{epoch: p.assigned.epoch}
	var producer *producerState
	if b.ProducerID >= 0 {
		producer = p.producers[b.ProducerID]
		base, duplicate, err := producer.check(b)
		if err != nil {
			return appended{}, err
		}
		if duplicate {
			producer.usedAt = now
			done.base, done.end, done.logStart = base, base+int64(b.NumRecords), p.log.start
			return done, nil
		}
		if producer == nil {
			producer = p.producers.add(b.ProducerID, cfg.maxProducers, cfg.producerIdle, now)
		}
	}
	before := p.log.kept
	base := p.log.append(own, p.assigned.epoch, b.NumRecords, b.MaxTimestamp)
	if producer != nil {
		producer.take(b, base, now)
	}
	p.appendedAt = now
	done.raised = p.raiseLocked(now)
	p.trimLocked(p.topic.retention)
	p.sum.Add(p.log.kept - before)
	done.base, done.end, done.logStart, done.stored = base, base+int64(b.NumRecords), p.log.start, true
	return done, nil
}

// uncommittedLocked is how many bytes lie beyond the high watermark. They cannot
// be trimmed, so they are bounded where they come in.
func (p *partition) uncommittedLocked() int64 {
	n := p.log.below(p.hw)
	if n == len(p.log.batches) {
		return 0
	}
	return p.log.written - p.log.batches[n].position
}

// state is what a fetch needs to know to decide whether it has waited enough.
type state struct {
	readable int64       // bytes from the fetch's offset on
	err      *kerr.Error // not the leader any more, or out of range: answer now
	changed  time.Time   // when there was last something new to read
}

// visibleLocked is how far a reader may read: a follower to the log's end, a
// consumer to the high watermark.
func (p *partition) visibleLocked(follower bool) int64 {
	if follower {
		return p.log.next
	}
	return p.hw
}

func (p *partition) state(offset int64, epoch int32, follower bool) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return state{err: err}
	}
	if !p.log.inRange(offset) {
		return state{err: kerr.OffsetOutOfRange}
	}
	s := state{readable: p.log.readable(offset, p.visibleLocked(follower)), changed: p.committedAt}
	if follower {
		s.changed = p.appendedAt
	}
	return s
}

// read is one partition's part of a fetch answer.
type read struct {
	start, hw int64
	batches   [][]byte
	size      int
	err       *kerr.Error
}

func (p *partition) read(offset int64, epoch int32, follower bool, room int, atLeastOne bool) (r read) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return read{start: -1, hw: -1, err: err}
	}
	r.start, r.hw = p.log.start, p.hw
	if !p.log.inRange(offset) {
		r.err = kerr.OffsetOutOfRange
		return r
	}
	r.batches, r.size = p.log.read(offset, p.visibleLocked(follower), room, atLeastOne)
	return r
}

// records returns the batches from offset on, and the log's end. What is beyond
// the high watermark is among them: to a leader it will be committed.
func (p *partition) records(offset int64) (batches [][]byte, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	batches, _ = p.log.read(max(offset, p.log.start), p.log.next, int(^uint(0)>>1), true)
	return batches, p.log.next
}

// trimLocked is retention. The offsets topic has none: its coordinator compacts
// it, and what that leaves is live.
func (p *partition) trimLocked(limit int64) (freed int64) {
	if p.topic.internal {
		return 0
	}
	return p.log.trim(limit, p.hw)
}

// free gives back what is above limit; retention over all partitions does this.
func (p *partition) free(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Add(-p.trimLocked(limit))
}

// spare is how many bytes retention over all partitions may take from.
func (p *partition) spare() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic.internal {
		return 0
	}
	return p.log.kept
}

// close ends the replica and returns what is to be kept of it. Whoever calls it
// then checks its keys, so that those who wait here learn of it.
func (p *partition) close() (kept stored, lost int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = -1
	if p.leading {
		lost = p.assigned.epoch
	}
	kept = stored{p.log, p.hw}
	p.sum.Add(-p.log.kept)
	p.closed, p.leading = true, false
	p.followers, p.maximal = nil, nil
	p.log = log{start: p.log.next, next: p.log.next}
	p.producers = nil
	return kept, lost
}
