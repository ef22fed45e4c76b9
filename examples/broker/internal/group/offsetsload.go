package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// load reads a shard's offsets from its log, on a goroutine of its own, and then
// opens the shard.
//
// The log of a new leader may end in records that the last one appended and had
// not replicated. They count: the new leader has them, and so will its
// followers. But nobody is shown an offset that could still be lost, so the
// shard stays closed until the log is replicated as far as it was read.
func (s *shard) load() {
	defer s.co.loads.Done()
	batches, end := s.co.Store.Records(s.index)
	groups, size := s.read(batches)
	if s.co.Store.AwaitReplicated(s.ctx, s.index, s.epoch, end) && s.open(groups, size) {
		return
	}
	for _, g := range groups {
		g.change(g.abandonLocked)
	}
}

// read makes the groups that a log has offsets of, and returns how long the log is.
func (s *shard) read(batches [][]byte) (groups map[string]*group, size int64) {
	offsets := map[string]map[offsetKey]committedOffset{}
	for _, raw := range batches {
		size += int64(len(raw))
		log.EachRecord(raw, func(at int64, key, value []byte) { readOffset(offsets, at, key, value) })
	}
	groups = map[string]*group{}
	for id, of := range offsets {
		g := newGroup(s, id)
		g.offsets = of
		groups[id] = g
		for _, o := range of {
			s.co.offsetBytes.used.Add(o.size) // also beyond the limit: they were promised
		}
	}
	return groups, size
}

// readOffset works one record of the log into the offsets.
func readOffset(offsets map[string]map[offsetKey]committedOffset, at int64, key, value []byte) {
	var k kmsg.OffsetCommitKey
	if k.ReadFrom(key) != nil || k.Version > offsetKeyVersion {
		return // a record of Kafka's that is no offset
	}
	of := offsets[k.Group]
	name := offsetKey{k.Topic, k.Partition}
	if value == nil {
		delete(of, name)
		if len(of) == 0 {
			delete(offsets, k.Group)
		}
		return
	}
	var v kmsg.OffsetCommitValue
	if v.ReadFrom(value) != nil {
		return
	}
	if of == nil {
		of = map[offsetKey]committedOffset{}
		offsets[k.Group] = of
	}
	if v.Version < 3 {
		v.LeaderEpoch = -1
	}
	of[name] = committedOffset{
		offset:      v.Offset,
		leaderEpoch: v.LeaderEpoch,
		metadata:    v.Metadata,
		committedAt: v.CommitTimestamp,
		at:          at,
		size:        offsetSize(k.Group, k.Topic, v.Metadata),
	}
}
