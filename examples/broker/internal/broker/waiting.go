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

// committed returns the high watermark of a leader epoch, for the Threshold of produces.
func (s *Server) committed(r replica.LeaderEpoch) int64 {
	if p := s.local(r.PartitionKey); p != nil {
		return p.CommittedIn(r.Epoch)
	}
	return replica.EpochEnded
}

// deleted returns the low watermark of a leader epoch, for the Threshold of deletions.
func (s *Server) deleted(r replica.LeaderEpoch) int64 {
	if p := s.local(r.PartitionKey); p != nil {
		return p.DeletedIn(r.Epoch, s.image())
	}
	return replica.EpochEnded
}

// The following functions complete the operations that wait for an event. No lock is held, and the
// completions do not wait for a client's network.

// maxInline is the most fetches that are completed on the goroutine that brings the event. That
// goroutine handles a request, a produce or a follower's fetch, that others wait for.
const maxInline = 64

// fetchPurgatory returns the purgatory of the fetches that wait for a watermark, with or without a
// session.
func (s *Server) fetchPurgatory(w watermark) *purgatory.Purgatory[watchKey] {
	if w == logEndOffset {
		return s.followerFetches
	}
	return s.fetches
}

// completeFetches completes the fetches that now have enough records: here, or on a worker if many
// wait. 100,000 fetches take about 250 ms.
func (s *Server) completeFetches(k watchKey) {
	s.markPending(k)
	fetches := s.fetchPurgatory(k.watermark)
	if fetches.Watching(k) <= maxInline {
		fetches.CheckAndComplete(k)
		return
	}
	_ = fetches.CheckAndCompleteLater(k) // fails only during a shutdown, which completes all fetches
}

// onAppend completes followers' fetches after an append. If there are no followers, the append
// also raises the high watermark, for which consumers wait.
func (s *Server) onAppend(p *replica.Partition, a replica.Appended) {
	s.completeFetches(watchKey{p.Key, logEndOffset})
	if a.Raised {
		s.onHighWatermark(p, a.Epoch)
	}
}

// onHighWatermark completes operations after a rise of the high watermark of a leader epoch.
func (s *Server) onHighWatermark(p *replica.Partition, epoch int32) {
	r := replica.LeaderEpoch{PartitionKey: p.Key, Epoch: epoch}
	s.produces.Advance(r, s.committed(r))
	s.completeFetches(watchKey{p.Key, highWatermark})
}

// onEpochEnd completes operations after the end of a leader epoch. Their clients must find the new
// leader.
func (s *Server) onEpochEnd(key meta.PartitionKey, epoch int32) {
	r := replica.LeaderEpoch{PartitionKey: key, Epoch: epoch}
	s.produces.Advance(r, replica.EpochEnded)
	s.deletes.Advance(r, replica.EpochEnded)
	s.completeFetches(watchKey{key, logEndOffset})
	s.completeFetches(watchKey{key, highWatermark})
}

// internalAppend is a delayed operation: it waits for the replication of records that this broker
// wrote itself.
type internalAppend struct {
	p         *replica.Partition
	epoch     int32
	base, end int64
	done      func(base int64, err *kerr.Error)
}

func (o *internalAppend) Complete(purgatory.Outcome, error) {
	o.done(o.base, o.p.Replicated(o.epoch, o.end))
}

// replicate appends a batch that this broker has made (see log.NewBatch) to a partition that it
// leads in the given epoch. It calls done when every in-sync replica has the batch, when that can
// no longer happen, or after the timeout. done is called exactly once, with no lock held, possibly
// before replicate returns.
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
		// This broker was re-elected between the check and the append. The records are in the log;
		// the next coordinator reads them from there.
		err = kerr.NotLeaderForPartition
	}
	if err != nil {
		done(-1, err)
		return
	}
	s.onAppend(p, a)
	op := &internalAppend{p: p, epoch: epoch, base: a.Base, end: a.End, done: done}
	_, refused := s.produces.TryCompleteElseWatch(context.Background(), op, timeout, purgatory.All,
		purgatory.Goal[replica.LeaderEpoch, int64]{Key: replica.LeaderEpoch{PartitionKey: p.Key, Epoch: epoch}, Number: a.End})
	switch {
	case refused == nil:
	case errors.Is(refused, purgatory.ErrClosed):
		done(a.Base, kerr.NotLeaderForPartition)
	default:
		done(a.Base, kerr.RequestTimedOut) // the purgatory is full; the records may still be committed
	}
}

// deleteBefore moves the start of a log that this broker leads to offset, unless that is above the
// high watermark. The followers learn of it with their next fetch.
func (s *Server) deleteBefore(p *replica.Partition, epoch int32, offset int64) {
	if p.DeleteBefore(epoch, offset) == nil {
		s.sessions.logStartMoved(p.Key)
		r := replica.LeaderEpoch{PartitionKey: p.Key, Epoch: epoch}
		s.deletes.Advance(r, s.deleted(r))
	}
}
