package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// The queue of writes to a shard's log: groups and offsets.
//
// One goroutine at a time takes from the queue: the one that finds no other at work. So the order
// of the queue is the order of the log, and no lock is held during an append: the append may call a
// done function, which takes locks.
//
// Some writes depend on the offsets that earlier writes have left: the snapshot of a compaction,
// and the tombstones of a group. Those are barriers. A barrier waits at the head of the queue until
// all earlier writes have completed; only then its records are made, and later writes are appended
// after it. So a snapshot has every commit before it in the log and none after it, and a load gives
// the same offsets whether it begins at the snapshot or before it. A snapshot made at any other
// moment could have the old offset of a commit that was appended before it but not yet replicated,
// and undo that commit.
//
// A write of several batches stays at the head of the queue, and its next batch is appended when
// the previous one is done. No other write gets in between, because the rest of a snapshot could
// undo it. If the batches were appended together, they could exceed the bytes that a partition
// accepts without its replicas (replica.Config.MaxUncommitted), and a snapshot of that size would
// never succeed, however often it is tried.

// write is a sequence of records that are written as a unit.
type write struct {
	records  []log.Record
	make     func() []log.Record // if set, makes records when the write's turn comes
	barrier  bool                // its turn comes when all earlier writes have completed
	snapshot bool                // of a compaction
	refused  bool                // it was queued after the shard's end
	done     func(first int64, err *kerr.Error)

	// Owned by the goroutine whose turn it is, then by the batch in flight.
	encoded   bool
	remaining [][]byte    // batches that are not appended yet
	first     int64       // offset of the first record; -1: not known yet
	err       *kerr.Error // why the rest is not appended
}

// writeQueue is a shard's queue. The shard's lock guards it.
type writeQueue struct {
	queue         []*write
	working       bool  // a goroutine takes from the queue
	inFlight      int   // batches appended and not yet done
	sinceSnapshot int64 // bytes written since the last snapshot
	snapshotSize  int64 // bytes of the last snapshot
	compacting    bool
}

// write queues a write. It calls done once, with no lock held, when all in-sync replicas have the
// records: with the offset of the first record, or -1 if there are none.
func (s *shard) write(w *write) {
	s.enqueue(w)
	s.work(w)
}

// enqueue is the first half of write. It may be called under a group's lock: the log then has the
// writes in the order in which the group has allowed them.
func (s *shard) enqueue(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.refused = s.ended; !w.refused {
		s.writes.queue = append(s.writes.queue, w)
	}
}

// work is the second half of write. It must be called with no lock held.
func (s *shard) work(w *write) {
	if w.refused {
		w.done(-1, kerr.NotLeaderForPartition)
		return
	}
	s.drainQueue()
}

// drainQueue appends the queued writes, unless another goroutine does.
func (s *shard) drainQueue() {
	for {
		w := s.nextWrite()
		if w == nil {
			return
		}
		if !w.encoded {
			s.begin(w)
		}
		s.append(w)
		s.doneWorking()
		s.compactIfDue()
	}
}

// nextWrite removes the write whose turn it is from the queue; nil if there is none. The caller
// must call doneWorking once it has appended the write.
func (s *shard) nextWrite() *write {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.writes
	if q.working || len(q.queue) == 0 || q.queue[0].barrier && q.inFlight > 0 {
		return nil
	}
	w := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	q.working = true
	return w
}

func (s *shard) doneWorking() {
	s.mu.Lock()
	s.writes.working = false
	s.mu.Unlock()
}

// begin encodes a write's batches.
func (s *shard) begin(w *write) {
	if w.make != nil {
		w.records = w.make()
	}
	var size int64
	w.remaining, size = s.batches(w.records)
	w.encoded, w.first, w.records = true, -1, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.snapshot {
		s.writes.sinceSnapshot, s.writes.snapshotSize = 0, size
	} else {
		s.writes.sinceSnapshot += size
	}
}

// append passes a write's next batch to the log. The last batch calls done; while there are more,
// the write is back in the queue, whose next turn or end calls it.
func (s *shard) append(w *write) {
	if len(w.remaining) == 0 || w.err != nil {
		w.done(w.first, w.err)
		return
	}
	batch := w.remaining[0]
	w.remaining[0] = nil
	w.remaining = w.remaining[1:]
	last := len(w.remaining) == 0
	if !s.appending(w, last) {
		w.done(-1, kerr.NotLeaderForPartition)
		return
	}
	s.co.Store.Replicate(s.index, s.epoch, batch, s.co.cfg.CommitTimeout, func(base int64, err *kerr.Error) {
		if w.err = err; err == nil && w.first < 0 {
			w.first = base
		}
		if last {
			w.done(w.first, err)
		}
		s.batchDone()
	})
}

// appending counts a batch that is about to be appended, and returns a write with more batches to
// the head of the queue. It returns false if the shard has ended.
func (s *shard) appending(w *write, last bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	q := &s.writes
	q.inFlight++
	if !last {
		w.barrier = true
		q.queue = slices.Insert(q.queue, 0, w)
	}
	return true
}

// batchDone is called after a batch has taken effect. A barrier may be waiting for it.
func (s *shard) batchDone() {
	s.mu.Lock()
	s.writes.inFlight--
	s.mu.Unlock()
	s.drainQueue()
}

// batches packs records into batches of at most MaxBatch bytes; a larger record gets its own batch.
func (s *shard) batches(records []log.Record) (batches [][]byte, sum int64) {
	limit := s.co.cfg.MaxBatch
	from, size := 0, 0
	for i, r := range records {
		n := len(r.Key) + len(r.Value)
		if i > from && size+n > limit {
			batches = append(batches, log.NewBatch(time.Now(), records[from:i]))
			from, size = i, 0
		}
		size += n
	}
	if from < len(records) {
		batches = append(batches, log.NewBatch(time.Now(), records[from:]))
	}
	for _, b := range batches {
		sum += int64(len(b))
	}
	return batches, sum
}
