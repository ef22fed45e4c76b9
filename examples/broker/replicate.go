package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// reign is a partition under one leader: what waits for the leader's watermarks
// waits on this key. When the reign ends, its watermarks count as infinite: all
// that waits for them is completed, finds that the leader is gone, and answers NOT_LEADER_OR_FOLLOWER.
// Operations that wait for several partitions go on waiting for the others.
type reign struct {
	partitionKey
	epoch int32
}

const over = math.MaxInt64

// committed is a reign's high watermark; the Threshold of produces asks.
func (s *server) committed(r reign) int64 {
	p := s.local(r.partitionKey)
	if p == nil {
		return over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leadsLocked(r.epoch) != nil {
		return over
	}
	return p.hw
}

// deleted is a reign's low watermark; the Threshold of deletions asks.
func (s *server) deleted(r reign) int64 {
	p := s.local(r.partitionKey)
	if p == nil || p.leads(r.epoch) != nil {
		return over
	}
	return p.lowWatermark(s.image())
}

func (p *partition) leads(epoch int32) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leadsLocked(epoch)
}

// The following tell those who wait that something has happened. No lock is
// held, and what they complete only hands answers to connections' writers.

// hasAppended: followers wait for it, and consumers where nobody follows.
func (s *server) hasAppended(p *partition, a appended) {
	s.fetches.CheckAndComplete(watchKey{p.key, theEnd})
	if a.raised {
		s.hasRaised(p, a.epoch)
	}
}

// hasRaised: the high watermark of a reign is higher.
func (s *server) hasRaised(p *partition, epoch int32) {
	r := reign{p.key, epoch}
	s.produces.Advance(r, s.committed(r))
	s.fetches.CheckAndComplete(watchKey{p.key, highWatermark})
}

// hasEnded: a reign is over. Whoever waits here must look for its successor.
func (s *server) hasEnded(key partitionKey, epoch int32) {
	r := reign{key, epoch}
	s.produces.Advance(r, over)
	s.deletes.Advance(r, over)
	s.fetches.CheckAndComplete(watchKey{key, theEnd})
	s.fetches.CheckAndComplete(watchKey{key, highWatermark})
}

// replicated returns what became of records that end at end: nil when they are
// committed and as many replicas have them as the topic asks for.
func (p *partition) replicated(epoch int32, end int64) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err := p.leadsLocked(epoch); {
	case err != nil:
		return kerr.NotLeaderForPartition
	case p.hw < end:
		return kerr.RequestTimedOut
	case len(p.assigned.isr) < int(p.topic.minISR):
		return kerr.NotEnoughReplicasAfterAppend
	}
	return nil
}

// ownRecords is a delayed operation: records that this broker wrote itself wait
// for their replicas.
type ownRecords struct {
	p         *partition
	epoch     int32
	base, end int64
	done      func(base int64, err *kerr.Error)
}

func (o *ownRecords) Complete(purgatory.Outcome, error) {
	o.done(o.base, o.p.replicated(o.epoch, o.end))
}

// replicate appends a batch that this broker has made (see newBatch) to a
// partition that it leads in the given epoch, and calls done when every in-sync
// replica has it, or it is known not to come to that, or the timeout is over.
// done is called exactly once, with no lock held, possibly before replicate
// returns.
func (s *server) replicate(p *partition, epoch int32, batch []byte, timeout time.Duration, done func(base int64, err *kerr.Error)) {
	b, err := parseBatch(batch, currentProduce, s.cfg.maxBatch)
	if err != nil {
		done(-1, err)
		return
	}
	if err := p.leads(epoch); err != nil {
		done(-1, kerr.NotLeaderForPartition)
		return
	}
	a, err := p.append(&s.cfg, batch, &b, true)
	if err == nil && a.epoch != epoch {
		// Between the look and the append another reign of this same broker began.
		// The records are in the log, and the next coordinator reads them there.
		err = kerr.NotLeaderForPartition
	}
	if err != nil {
		done(-1, err)
		return
	}
	s.hasAppended(p, a)
	op := &ownRecords{p: p, epoch: epoch, base: a.base, end: a.end, done: done}
	_, refused := s.produces.TryCompleteElseWatch(context.Background(), op, timeout, purgatory.All,
		purgatory.Goal[reign, int64]{Key: reign{p.key, epoch}, Number: a.end})
	switch {
	case refused == nil:
	case errors.Is(refused, purgatory.ErrClosed):
		done(a.base, kerr.NotLeaderForPartition)
	default:
		done(a.base, kerr.RequestTimedOut) // no room to wait; whether it will be committed is open
	}
}

// deleteBefore moves the start of a log that this broker leads up to offset, at
// most to the high watermark; the followers hear of it with their next fetch.
func (s *server) deleteBefore(p *partition, epoch int32, offset int64) {
	if p.deleteBefore(epoch, offset) == nil {
		r := reign{p.key, epoch}
		s.deletes.Advance(r, s.deleted(r))
	}
}

func (p *partition) deleteBefore(epoch int32, offset int64) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return err
	}
	if offset > p.hw {
		return kerr.OffsetOutOfRange
	}
	p.sum.Add(-p.log.deleteBefore(offset))
	return nil
}
