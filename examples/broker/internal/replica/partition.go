package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Partition is one broker's replica of a partition: its log, its producers, and
// its role. What a leader does besides is in isr.go, what a follower does in
// follower.go.
type Partition struct {
	Key meta.PartitionKey
	ID  int32 // of the broker
	cfg *Config
	sum *atomic.Int64 // bytes kept in all of the broker's logs

	uptime func() time.Duration // of the broker

	mu        sync.Mutex
	topic     *meta.Topic
	log       log.Log
	producers log.Producers
	hw        int64           // high watermark: below it every in-sync replica has everything
	assigned  meta.Assignment // the newest this broker knows of
	leading   bool
	closed    bool // the topic is deleted, or the broker has stopped

	appendedAt  time.Time // of the last append
	committedAt time.Time // when the high watermark last rose

	// Of a leader.
	maximal   []int32 // in sync, or about to be: an ISR asked for counts before it is granted
	followers map[int32]*follower
}

// Config bounds what a replica takes in. The zero value of a field is its default.
type Config struct {
	MaxProducers   int           // idempotent producers remembered per partition
	ProducerIdle   time.Duration // after which a producer's sequence is forgotten
	MaxUncommitted int64         // bytes of a partition that not all in-sync replicas have; no more is taken then
}

// WithDefaults fills in what is zero and refuses what is out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Replica.MaxProducers", &c.MaxProducers, 256, 1, 1<<20)
	option.Fill(&b, "Replica.ProducerIdle", &c.ProducerIdle, time.Hour, 1, 1<<62)
	option.Fill(&b, "Replica.MaxUncommitted", &c.MaxUncommitted, 16<<20, 1, 1<<50)
	return c, b.Err
}

// New makes broker id's replica of a partition, with the log that was found on its disk.
// sum counts the bytes of all of the broker's logs; uptime is the broker's, by which its
// followers are judged.
func New(cfg *Config, key meta.PartitionKey, id int32, sum *atomic.Int64, uptime func() time.Duration, found Stored) *Partition {
	p := &Partition{Key: key, ID: id, cfg: cfg, sum: sum, uptime: uptime, log: found.log, hw: found.hw, assigned: meta.Assignment{Version: -1, Epoch: -1, Leader: meta.NoLeader}}
	p.rebuildProducers()
	sum.Add(p.log.Kept())
	return p
}

// Turn is what a new assignment has changed.
type Turn struct {
	Lost   int32 // the epoch of a reign that ended here, -1 for none
	Begun  int32 // the epoch of one that begins, -1 for none
	Raised bool  // the high watermark rose
}

// Assign takes what the controller has decided. An older decision than the one
// known changes nothing.
func (p *Partition) Assign(t *meta.Topic, a meta.Assignment, now time.Duration) Turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := Turn{Lost: -1, Begun: -1}
	if p.closed || a.Version < p.assigned.Version {
		return done
	}
	if a.Version == p.assigned.Version {
		p.topic = t // it has other settings
		return done
	}
	p.topic = t
	another := a.Epoch != p.assigned.Epoch
	if p.leading && (another || a.Leader != p.ID) {
		done.Lost = p.assigned.Epoch
	}
	p.assigned = a
	p.leading = a.Leader == p.ID
	switch {
	case !p.leading:
		p.followers, p.maximal = nil, nil
	case another:
		done.Begun = a.Epoch
		p.maximal = a.ISR
		p.followers = map[int32]*follower{}
		for _, id := range meta.Without(a.Replicas, p.ID) {
			p.followers[id] = &follower{end: -1, start: -1, caughtUp: now}
		}
		done.Raised = p.raiseLocked()
	default:
		p.maximal = a.ISR
		done.Raised = p.raiseLocked()
	}
	return done
}

// leadsLocked reports whether this replica may answer for the partition to someone
// who believes in the given epoch (-1: does not know).
func (p *Partition) leadsLocked(believed int32) *kerr.Error {
	switch {
	case p.closed:
		return kerr.UnknownTopicOrPartition
	case !p.leading:
		return kerr.NotLeaderForPartition
	}
	return log.CheckEpoch(believed, p.assigned.Epoch)
}

// Appended is what became of a batch.
type Appended struct {
	Base, End, LogStart int64
	Epoch               int32
	Stored              bool // false for a repeated batch, which changes nothing
	Raised              bool // the high watermark rose at once: there is no other replica
}

// Append stores a batch that log.ParseBatch has passed. It copies raw, for that is
// the connection's buffer. With all, there must be as many in-sync replicas as
// the topic asks for. The caller then tells those who wait, with no lock held:
// see server.append.
func (p *Partition) Append(raw []byte, b *kmsg.RecordBatch, all bool) (Appended, *kerr.Error) {
	own := slices.Clone(raw) // outside the lock
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(-1); err != nil {
		return Appended{}, err
	}
	if all && len(p.assigned.ISR) < int(p.topic.MinISR) || p.uncommittedLocked() > p.cfg.MaxUncommitted {
		return Appended{}, kerr.NotEnoughReplicas
	}
	done := Appended{Epoch: p.assigned.Epoch}
	var producer *log.Producer
	if b.ProducerID >= 0 {
		producer = p.producers[b.ProducerID]
		base, duplicate, err := producer.Check(b)
		if err != nil {
			return Appended{}, err
		}
		if duplicate {
			producer.UsedAt = now
			done.Base, done.End, done.LogStart = base, base+int64(b.NumRecords), p.log.Start()
			return done, nil
		}
		if producer == nil {
			producer = p.producers.Add(b.ProducerID, p.cfg.MaxProducers, p.cfg.ProducerIdle, now)
		}
	}
	before := p.log.Kept()
	p.behindLocked()
	base := p.log.Append(own, p.assigned.Epoch, b.NumRecords, b.MaxTimestamp)
	if producer != nil {
		producer.Take(b, base, now)
	}
	p.appendedAt = now
	done.Raised = p.raiseLocked()
	p.trimLocked(p.topic.Retention)
	p.sum.Add(p.log.Kept() - before)
	done.Base, done.End, done.LogStart, done.Stored = base, base+int64(b.NumRecords), p.log.Start(), true
	return done, nil
}

// uncommittedLocked is how many bytes lie beyond the high watermark. They cannot
// be trimmed, so they are bounded where they come in.
func (p *Partition) uncommittedLocked() int64 {
	return p.log.Beyond(p.hw)
}

// State is what a fetch needs to know to decide whether it has waited enough.
type State struct {
	Readable int64       // bytes from the fetch's offset on
	Err      *kerr.Error // not the leader any more, or out of range: answer now
	Changed  time.Time   // when there was last something new to read
}

// visibleLocked is how far a reader may read: a follower to the log's end, a
// consumer to the high watermark.
func (p *Partition) visibleLocked(follower bool) int64 {
	if follower {
		return p.log.End()
	}
	return p.hw
}

// State returns where a fetch from offset stands.
func (p *Partition) State(offset int64, epoch int32, follower bool) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return State{Err: err}
	}
	if !p.log.InRange(offset) {
		return State{Err: kerr.OffsetOutOfRange}
	}
	s := State{Readable: p.log.Readable(offset, p.visibleLocked(follower)), Changed: p.committedAt}
	if follower {
		s.Changed = p.appendedAt
	}
	return s
}

// ReadResult is one partition's part of a fetch answer.
type ReadResult struct {
	Start, HighWatermark int64
	Batches              [][]byte
	Size                 int
	Err                  *kerr.Error
}

func (p *Partition) Read(offset int64, epoch int32, follower bool, room int, atLeastOne bool) (r ReadResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return ReadResult{Start: -1, HighWatermark: -1, Err: err}
	}
	r.Start, r.HighWatermark = p.log.Start(), p.hw
	if !p.log.InRange(offset) {
		r.Err = kerr.OffsetOutOfRange
		return r
	}
	r.Batches, r.Size = p.log.Read(offset, p.visibleLocked(follower), room, atLeastOne)
	return r
}

// Records returns the batches from offset on, and the log's end. What is beyond
// the high watermark is among them: to a leader it will be committed.
func (p *Partition) Records(offset int64) (batches [][]byte, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	batches, _ = p.log.Read(max(offset, p.log.Start()), p.log.End(), int(^uint(0)>>1), true)
	return batches, p.log.End()
}

// Offsets are where a replica's log stands.
type Offsets struct {
	Start, Committed, End int64
	Bytes                 int64 // kept
	Batches               int
}

// Offsets returns where the log stands now.
func (p *Partition) Offsets() Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Offsets{p.log.Start(), p.hw, p.log.End(), p.log.Kept(), p.log.Len()}
}

// Verify checks the replica's log, for tests.
func (p *Partition) Verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Verify()
}

// trimLocked is retention. The offsets topic has none: its coordinator compacts
// it, and what that leaves is live.
func (p *Partition) trimLocked(limit int64) (freed int64) {
	if p.topic.Internal {
		return 0
	}
	return p.log.Trim(limit, p.hw)
}

// Expire drops what is older than the topic keeps records, by their own timestamps.
func (p *Partition) Expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.topic.Internal || p.topic.RetentionTime == 0 {
		return
	}
	p.sum.Add(-p.log.Expire(now.Add(-p.topic.RetentionTime).UnixMilli(), p.hw))
}

// MaxBatch returns how many bytes a batch may have, of those that a broker takes.
func (p *Partition) MaxBatch(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic.MaxBatch == 0 {
		return most
	}
	return min(most, p.topic.MaxBatch)
}

// free gives back what is above limit; retention over all partitions does this.
func (p *Partition) free(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Add(-p.trimLocked(limit))
}

// spare is how many bytes retention over all partitions may take from.
func (p *Partition) spare() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic.Internal {
		return 0
	}
	return p.log.Kept()
}

// Close ends the replica and returns what is to be kept of it. Whoever calls it
// then checks its keys, so that those who wait here learn of it.
func (p *Partition) Close() (kept Stored, lost int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = -1
	if p.leading {
		lost = p.assigned.Epoch
	}
	kept = Stored{p.log, p.hw}
	p.sum.Add(-p.log.Kept())
	p.closed, p.leading = true, false
	p.followers, p.maximal = nil, nil
	p.log.Restart(p.log.End())
	p.producers = nil
	return kept, lost
}
