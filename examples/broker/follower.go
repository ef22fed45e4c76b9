package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a follower does with its replica: take what its leader has, and cut off
// what its leader has not.

// position is what a follower asks its leader for.
type position struct {
	epoch, lastEpoch int32
	offset, start    int64
}

// following returns where the replica stands, if it follows that leader.
func (p *partition) following(leader int32) (position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.leading || p.assigned.leader != leader {
		return position{}, false
	}
	return position{p.assigned.epoch, p.log.lastEpoch(), p.log.next, p.log.start}, true
}

// followsLocked is false for what a leader of another epoch has said.
func (p *partition) followsLocked(epoch int32) bool {
	return !p.closed && !p.leading && p.assigned.epoch == epoch
}

// take appends what the leader sent, learns its watermarks, and drops what it
// has dropped. An error means that the answer makes no sense: what came before
// the fault is kept.
func (p *partition) take(cfg *config, epoch int32, batches []byte, hw, leaderStart int64) error {
	own := append([]byte(nil), batches...) // one copy: the batches are kept for as long as each other, nearly
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return nil // it came too late
	}
	before, now := p.log.kept, time.Now()
	err := p.addLocked(cfg, own, now)
	if known := min(hw, p.log.next); known > p.hw {
		p.hw, p.committedAt = known, now
	}
	p.log.deleteBefore(min(leaderStart, p.hw))
	p.trimLocked(p.topic.retention)
	p.sum.Add(p.log.kept - before)
	return err
}

var errNotNext = errors.New("batch is not the next one")

func (p *partition) addLocked(cfg *config, raw []byte, now time.Time) error {
	for len(raw) > 0 {
		if len(raw) < batchHeader {
			return errTruncated
		}
		size := lengthEnd + int64(int32(binary.BigEndian.Uint32(raw[8:])))
		if size < batchHeader || size > int64(len(raw)) {
			return errTruncated
		}
		var b kmsg.RecordBatch
		one := raw[:size:size]
		raw = raw[size:]
		if err := b.ReadFrom(one); err != nil {
			return err
		}
		if uint32(b.CRC) != crc32.Checksum(one[crcEnd:], castagnoli) {
			return errors.New("batch with a wrong checksum")
		}
		if len(p.log.batches) == 0 && b.FirstOffset < p.log.next {
			p.log.next = b.FirstOffset // the leader's log starts inside this batch
		}
		if b.FirstOffset != p.log.next || b.LastOffsetDelta < 0 {
			return fmt.Errorf("%w: at %d, not %d", errNotNext, b.FirstOffset, p.log.next)
		}
		p.log.add(storedBatch{
			base:         b.FirstOffset,
			last:         b.FirstOffset + int64(b.LastOffsetDelta),
			maxTimestamp: b.MaxTimestamp,
			raw:          one,
		}, b.PartitionLeaderEpoch)
		p.noteProducerLocked(cfg, &b, now)
	}
	return nil
}

// noteProducerLocked remembers a batch's sequence, as its leader does: this
// replica may be the next leader, and must know a batch sent again.
func (p *partition) noteProducerLocked(cfg *config, b *kmsg.RecordBatch, now time.Time) {
	if b.ProducerID < 0 {
		return
	}
	producer := p.producers[b.ProducerID]
	if producer == nil {
		producer = p.producers.add(b.ProducerID, cfg.maxProducers, cfg.producerIdle, now)
	}
	producer.take(b, b.FirstOffset, now)
}

// rebuildProducers reads the sequences back out of the log: after a restart, and
// after a truncation, which may have undone some.
func (p *partition) rebuildProducers(cfg *config) {
	p.producers = producerStates{}
	now := time.Now()
	for _, stored := range p.log.batches {
		var b kmsg.RecordBatch
		if b.ReadFrom(stored.raw) == nil { // it was read when it came
			p.noteProducerLocked(cfg, &b, now)
		}
	}
}

// partWays cuts the log back to where it agrees with the leader's, which has
// said what it knows of an epoch: the largest one that is not above this
// replica's last, and where that ends there. It may take several rounds. It
// returns how many records were cut off that had been committed: there must be
// none.
func (p *partition) partWays(cfg *config, epoch int32, theirs epochStart) (lost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return 0
	}
	to := p.log.start
	if found, end := p.log.epochEnd(theirs.epoch); found == theirs.epoch {
		to = min(theirs.start, end)
	} else if found >= 0 {
		to = end
	}
	return p.cutLocked(cfg, max(to, p.log.start))
}

func (p *partition) cutLocked(cfg *config, to int64) (lost int64) {
	p.sum.Add(-p.log.truncate(to))
	p.rebuildProducers(cfg)
	if p.hw > p.log.next {
		lost = p.hw - p.log.next
		p.hw = p.log.next
	}
	return lost
}

// restartAt begins the log anew at the start of the leader's, when the leader
// has deleted what this replica still needed.
func (p *partition) restartAt(cfg *config, epoch int32, start int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return
	}
	p.sum.Add(-p.log.restart(start))
	p.rebuildProducers(cfg)
	p.hw = start // a log starts where it has been committed
}
