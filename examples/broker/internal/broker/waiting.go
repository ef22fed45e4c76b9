package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/purgatory"
)

// committed returns a reign's high watermark, for the Threshold of produces.
func (s *Server) committed(r replica.Reign) int64 {
	if p := s.local(r.PartitionKey); p != nil {
		return p.CommittedIn(r.Epoch)
	}
	return replica.Over
}

// deleted returns a reign's low watermark, for the Threshold of deletions.
func (s *Server) deleted(r replica.Reign) int64 {
	if p := s.local(r.PartitionKey); p != nil {
		return p.DeletedIn(r.Epoch, s.image())
	}
	return replica.Over
}

// The following tell those who wait that something has happened. No lock is
// held, and what they complete waits for no client's network.

// aFew is how many fetches are completed on the goroutine that brings what they wait for:
// the way of a request that others wait for, a produce or a follower's fetch.
const aFew = 64

// fetchesFor returns the purgatory of the fetches that wait for a watermark, in a session or
// without one.
func (s *Server) fetchesFor(w watermark) *purgatory.Purgatory[watchKey] {
	if w == theEnd {
		return s.follows
	}
	return s.fetches
}

// completeFetches completes those that have enough now: here, or if many wait, on a worker.
// 100,000 take some 250 ms.
func (s *Server) completeFetches(k watchKey) {
	s.touchSessions(k)
	fetches := s.fetchesFor(k.watermark)
	if fetches.Watching(k) <= aFew {
		fetches.CheckAndComplete(k)
		return
	}
	_ = fetches.CheckAndCompleteLater(k) // fails in a shutdown only, which completes them all
}

// hasAppended: followers wait for it, and consumers where nobody follows.
func (s *Server) hasAppended(p *replica.Partition, a replica.Appended) {
	s.completeFetches(watchKey{p.Key, theEnd})
	if a.Raised {
		s.hasRaised(p, a.Epoch)
	}
}

// hasRaised: the high watermark of a reign is higher.
func (s *Server) hasRaised(p *replica.Partition, epoch int32) {
	r := replica.Reign{PartitionKey: p.Key, Epoch: epoch}
	s.produces.Advance(r, s.committed(r))
	s.completeFetches(watchKey{p.Key, highWatermark})
}

// hasEnded: a reign is over. Whoever waits here must look for its successor.
func (s *Server) hasEnded(key meta.PartitionKey, epoch int32) {
	r := replica.Reign{PartitionKey: key, Epoch: epoch}
	s.produces.Advance(r, replica.Over)
	s.deletes.Advance(r, replica.Over)
	s.completeFetches(watchKey{key, theEnd})
	s.completeFetches(watchKey{key, highWatermark})
}

// ownRecords is a delayed operation: records that this broker wrote itself wait
// for their replicas.
type ownRecords struct {
	p         *replica.Partition
	epoch     int32
	base, end int64
	done      func(base int64, err *kerr.Error)
}

func (o *ownRecords) Complete(purgatory.Outcome, error) {
	o.done(o.base, o.p.Replicated(o.epoch, o.end))
}

// replicate appends a batch that this broker has made (see log.NewBatch) to a
// partition that it leads in the given epoch, and calls done when every in-sync
// replica has it, or it is known not to come to that, or the timeout is over.
// done is called exactly once, with no lock held, possibly before replicate
// returns.
func (s *Server) replicate(p *replica.Partition, epoch int32, batch []byte, timeout time.Duration, done func(base int64, err *kerr.Error)) {
	b, err := log.ParseBatch(batch, log.CurrentProduce, s.cfg.MaxBatch)
	if err != nil {
		done(-1, err)
		return
	}
	if err := p.Leads(epoch); err != nil {
		done(-1, kerr.NotLeaderForPartition)
		return
	}
	a, err := p.Append(batch, &b, true)
	if err == nil && a.Epoch != epoch {
		// Between the look and the append another reign of this same broker began.
		// The records are in the log, and the next coordinator reads them there.
		err = kerr.NotLeaderForPartition
	}
	if err != nil {
		done(-1, err)
		return
	}
	s.hasAppended(p, a)
	op := &ownRecords{p: p, epoch: epoch, base: a.Base, end: a.End, done: done}
	_, refused := s.produces.TryCompleteElseWatch(context.Background(), op, timeout, purgatory.All,
		purgatory.Goal[replica.Reign, int64]{Key: replica.Reign{PartitionKey: p.Key, Epoch: epoch}, Number: a.End})
	switch {
	case refused == nil:
	case errors.Is(refused, purgatory.ErrClosed):
		done(a.Base, kerr.NotLeaderForPartition)
	default:
		done(a.Base, kerr.RequestTimedOut) // no room to wait; whether it will be committed is open
	}
}

// deleteBefore moves the start of a log that this broker leads up to offset, at
// most to the high watermark; the followers hear of it with their next fetch.
func (s *Server) deleteBefore(p *replica.Partition, epoch int32, offset int64) {
	if p.DeleteBefore(epoch, offset) == nil {
		s.sessions.startMoved(p.Key)
		r := replica.Reign{PartitionKey: p.Key, Epoch: epoch}
		s.deletes.Advance(r, s.deleted(r))
	}
}
