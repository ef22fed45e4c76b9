package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// The queue of what a shard writes to its partition's log: groups and offsets.
//
// One goroutine at a time takes from the queue: the one that finds no other at work. So
// the order of the queue is the order of the log, and no lock is held while the log is
// appended to: a done function may be called from there, and would meet it.
//
// Some writes say what others have made of the offsets: the snapshot of a
// compaction, the tombstones of a group. Those are barriers. One waits at the
// queue's head until all before it have ended, and only then is its content
// made; what stands behind it is appended after it. So a snapshot holds every
// commit that lies before it in the log and none that lies behind it, and to
// load the log gives the same offsets whether one begins at the snapshot or
// before it. Taken at any other moment it could hold the old offset of a commit
// that was appended before it and not yet replicated, and undo it.
//
// A write that is more than one batch stays at the queue's head, and its next batch is
// appended when the one before is done. Nothing gets in between: what did could be undone by
// the rest of a snapshot. Appended together they could be more than a partition takes
// without its replicas (replica.Config.MaxUncommitted), and a snapshot of that size would
// never get through, however often it is tried.

// write is records that are written as one.
type write struct {
	records  []log.Record
	make     func() []log.Record // if set, makes records when its turn comes
	barrier  bool                // its turn comes when all before it have ended
	snapshot bool                // of a compaction
	refused  bool                // it came after the shard's end
	done     func(first int64, err *kerr.Error)

	// Of whoever has its turn, and then of the batch that is under way.
	begun bool
	left  [][]byte    // batches that are not appended yet
	first int64       // offset of the first record; -1: not known yet
	err   *kerr.Error // why the rest is not appended
}

// writeQueue is a shard's queue. The shard's lock guards it.
type writeQueue struct {
	queue      []*write
	working    bool  // somebody takes from the queue
	underWay   int   // batches appended and not yet done
	grown      int64 // bytes written since the last snapshot
	snapshot   int64 // bytes of that
	compacting bool
}

// write queues a write. Its done is called once, with no lock held: with the
// offset of its first record (-1 if there are none) when all in-sync replicas
// have it.
func (s *shard) write(w *write) {
	s.enqueue(w)
	s.work(w)
}

// enqueue is the first half of it, which may be done under a group's lock: the
// log's order is then that in which the group has allowed the writes.
func (s *shard) enqueue(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.refused = s.ended; !w.refused {
		s.writes.queue = append(s.writes.queue, w)
	}
}

// work is the second half, with no lock held.
func (s *shard) work(w *write) {
	if w.refused {
		w.done(-1, kerr.NotLeaderForPartition)
		return
	}
	s.takeTurns()
}

// takeTurns appends what is queued, unless somebody else does.
func (s *shard) takeTurns() {
	for {
		w := s.nextWrite()
		if w == nil {
			return
		}
		if !w.begun {
			s.begin(w)
		}
		s.append(w)
		s.doneWorking()
		s.compactIfDue()
	}
}

// nextWrite takes a write whose turn it is; nil if there is none. Whoever gets
// one calls doneWorking when it is appended.
func (s *shard) nextWrite() *write {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.writes
	if q.working || len(q.queue) == 0 || q.queue[0].barrier && q.underWay > 0 {
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

// begin makes a write's batches.
func (s *shard) begin(w *write) {
	if w.make != nil {
		w.records = w.make()
	}
	var size int64
	w.left, size = s.batches(w.records)
	w.begun, w.first, w.records = true, -1, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.snapshot {
		s.writes.grown, s.writes.snapshot = 0, size
	} else {
		s.writes.grown += size
	}
}

// append hands a write's next batch to the log. done is called by who has the write then:
// this batch if it is the last, or else the queue.
func (s *shard) append(w *write) {
	if len(w.left) == 0 || w.err != nil {
		w.done(w.first, w.err)
		return
	}
	batch := w.left[0]
	w.left[0] = nil
	w.left = w.left[1:]
	last := len(w.left) == 0
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

// appending notes a batch that is about to be appended, and puts a write that has more back.
// False: the shard has ended.
func (s *shard) appending(w *write, last bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	q := &s.writes
	q.underWay++
	if !last {
		w.barrier = true
		q.queue = slices.Insert(q.queue, 0, w)
	}
	return true
}

// batchDone comes after a write has taken effect. A barrier may wait for it.
func (s *shard) batchDone() {
	s.mu.Lock()
	s.writes.underWay--
	s.mu.Unlock()
	s.takeTurns()
}

// batches packs records.
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
