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

// Partition is one broker's replica of a partition: its log, its producers, and its role. The rest
// of the leader's side is in isr.go, the follower's in follower.go.
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
	hw        int64           // high watermark: every in-sync replica has all records below it
	assigned  meta.Assignment // the newest that this broker knows
	leading   bool
	closed    bool // the topic was deleted, or the broker has stopped

	appendedAt  time.Time // of the last append
	committedAt time.Time // when the high watermark last rose

	// Only for a leader.
	maximalISR []int32 // in sync or requested: a replica counts before the controller grants the request
	followers  map[int32]*follower
}

// Config bounds what a replica stores. The zero value of a field means its default.
type Config struct {
	MaxProducers   int           // idempotent producers remembered per partition
	ProducerIdle   time.Duration // after which a producer's sequence is forgotten
	MaxUncommitted int64         // bytes of a partition above the high watermark; then appends fail
}

// WithDefaults fills in the zero fields and returns an error for values out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Replica.MaxProducers", &c.MaxProducers, 256, 1, 1<<20)
	option.Fill(&b, "Replica.ProducerIdle", &c.ProducerIdle, time.Hour, 1, 1<<62)
	option.Fill(&b, "Replica.MaxUncommitted", &c.MaxUncommitted, 16<<20, 1, 1<<50)
	return c, b.Err
}

// New returns broker id's replica of a partition, with the log found on its disk. sum counts the
// bytes of all logs of the broker; uptime is the broker's clock, which measures its followers' lag.
func New(cfg *Config, key meta.PartitionKey, id int32, sum *atomic.Int64, uptime func() time.Duration, found Stored) *Partition {
	p := &Partition{Key: key, ID: id, cfg: cfg, sum: sum, uptime: uptime, log: found.log, hw: found.hw, assigned: meta.Assignment{Version: -1, Epoch: -1, Leader: meta.NoLeader}}
	p.rebuildProducers()
	sum.Add(p.log.Size())
	return p
}

// RoleChange is the effect of a new assignment.
type RoleChange struct {
	EndedEpoch   int32 // the leader epoch that ended here, -1 for none
	StartedEpoch int32 // the leader epoch that begins here, -1 for none
	Raised       bool  // the high watermark rose
}

// Assign applies a decision of the controller. A decision older than the known one changes nothing.
func (p *Partition) Assign(t *meta.Topic, a meta.Assignment, now time.Duration) RoleChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	change := RoleChange{EndedEpoch: -1, StartedEpoch: -1}
	if p.closed || a.Version < p.assigned.Version {
		return change
	}
	if a.Version == p.assigned.Version {
		p.topic = t // it may have new settings
		return change
	}
	p.topic = t
	newEpoch := a.Epoch != p.assigned.Epoch
	if p.leading && (newEpoch || a.Leader != p.ID) {
		change.EndedEpoch = p.assigned.Epoch
	}
	p.assigned = a
	p.leading = a.Leader == p.ID
	switch {
	case !p.leading:
		p.followers, p.maximalISR = nil, nil
	case newEpoch:
		change.StartedEpoch = a.Epoch
		p.maximalISR = a.ISR
		p.followers = map[int32]*follower{}
		for _, id := range meta.Without(a.Replicas, p.ID) {
			p.followers[id] = &follower{end: -1, start: -1, caughtUp: now}
		}
		change.Raised = p.raiseLocked()
	default:
		p.maximalISR = a.ISR
		change.Raised = p.raiseLocked()
	}
	return change
}

// leadsLocked returns an error unless this replica is the leader in the epoch that the client or
// follower believes in (-1: unknown).
func (p *Partition) leadsLocked(currentEpoch int32) *kerr.Error {
	switch {
	case p.closed:
		return kerr.UnknownTopicOrPartition
	case !p.leading:
		return kerr.NotLeaderForPartition
	}
	return log.CheckEpoch(currentEpoch, p.assigned.Epoch)
}

// Appended is the result of an append.
type Appended struct {
	Base, End, LogStart int64
	Epoch               int32
	Stored              bool // false for a duplicate batch, which changes nothing
	Raised              bool // the high watermark rose at once: this is the only in-sync replica
}

// Append stores a batch that log.ParseBatch has accepted. It copies raw, because that is the
// connection's buffer. With all, there must be as many in-sync replicas as the topic requires. The
// caller then notifies pending operations, without holding a lock: see server.append.
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
	before := p.log.Size()
	p.noteCaughtUpLocked()
	base := p.log.Append(own, p.assigned.Epoch, b.NumRecords, b.MaxTimestamp)
	if producer != nil {
		producer.Record(b, base, now)
	}
	p.appendedAt = now
	done.Raised = p.raiseLocked()
	p.trimLocked(p.topic.Retention)
	p.sum.Add(p.log.Size() - before)
	done.Base, done.End, done.LogStart, done.Stored = base, base+int64(b.NumRecords), p.log.Start(), true
	return done, nil
}

// uncommittedLocked returns the bytes above the high watermark. They cannot be trimmed, so appends
// limit them.
func (p *Partition) uncommittedLocked() int64 {
	return p.log.SizeFrom(p.hw)
}

// State tells a fetch whether it has waited long enough.
type State struct {
	Readable int64       // bytes from the fetch's offset on
	Err      *kerr.Error // not the leader any more, or out of range: respond now
	Changed  time.Time   // the last time that new records became readable
}

// visibleLocked is the end of the records that a reader may see: the log's end for a follower, the
// high watermark for a consumer.
func (p *Partition) visibleLocked(follower bool) int64 {
	if follower {
		return p.log.End()
	}
	return p.hw
}

// State returns the state of the partition for a fetch from offset.
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

// ReadResult is one partition's part of a fetch response.
type ReadResult struct {
	Start, HighWatermark int64
	Batches              [][]byte
	Size                 int
	Err                  *kerr.Error
}

func (p *Partition) Read(offset int64, epoch int32, follower bool, maxBytes int, atLeastOne bool) (r ReadResult) {
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
	r.Batches, r.Size = p.log.Read(offset, p.visibleLocked(follower), maxBytes, atLeastOne)
	return r
}

// Records returns the batches from offset on, and the log's end. They include the records above the
// high watermark, which the leader will commit.
func (p *Partition) Records(offset int64) (batches [][]byte, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	batches, _ = p.log.Read(max(offset, p.log.Start()), p.log.End(), int(^uint(0)>>1), true)
	return batches, p.log.End()
}

// Offsets are the offsets and the size of a replica's log.
type Offsets struct {
	Start, Committed, End int64
	Bytes                 int64 // kept
	Batches               int
}

// Offsets returns the log's current offsets and size.
func (p *Partition) Offsets() Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Offsets{p.log.Start(), p.hw, p.log.End(), p.log.Size(), p.log.Len()}
}

// Verify checks the replica's log, for tests.
func (p *Partition) Verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Verify()
}

// trimLocked applies retention by bytes. The offsets topic has none: its coordinator compacts it,
// and the remaining records are live.
func (p *Partition) trimLocked(limit int64) (freed int64) {
	if p.topic.Internal {
		return 0
	}
	return p.log.Trim(limit, p.hw)
}

// Expire drops records older than the topic's retention time, by their own timestamps.
func (p *Partition) Expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.topic.Internal || p.topic.RetentionTime == 0 {
		return
	}
	p.sum.Add(-p.log.Expire(now.Add(-p.topic.RetentionTime).UnixMilli(), p.hw))
}

// MaxBatch returns the topic's limit for the bytes of a batch, or most if the topic has no lower
// one.
func (p *Partition) MaxBatch(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic.MaxBatch == 0 {
		return most
	}
	return min(most, p.topic.MaxBatch)
}

// evict trims the log to limit bytes, for retention over all partitions.
func (p *Partition) evict(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Add(-p.trimLocked(limit))
}

// evictable returns the number of bytes that retention over all partitions may take from this one.
func (p *Partition) evictable() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic.Internal {
		return 0
	}
	return p.log.Size()
}

// Close ends the replica and returns the part of it to store. The caller then checks the
// partition's keys, to complete the operations that wait on it.
func (p *Partition) Close() (kept Stored, endedEpoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	endedEpoch = -1
	if p.leading {
		endedEpoch = p.assigned.Epoch
	}
	kept = Stored{p.log, p.hw}
	p.sum.Add(-p.log.Size())
	p.closed, p.leading = true, false
	p.followers, p.maximalISR = nil, nil
	p.log.Reset(p.log.End())
	p.producers = nil
	return kept, endedEpoch
}
