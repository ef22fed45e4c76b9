package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// load reads a shard's groups and offsets from its log, on a goroutine of its own, and then opens
// the shard.
//
// The log of a new leader may end in records that its predecessor appended but did not replicate.
// They are valid: the new leader has them, and its followers will. But no client may see an offset
// or an assignment that could still be lost, so the shard stays closed until the log is replicated
// up to the end that was read.
func (s *shard) load() {
	defer s.co.loads.Done()
	batches, end := s.co.Store.Records(s.index)
	groups, size := s.read(batches)
	if s.co.Store.AwaitReplicated(s.ctx, s.index, s.epoch, end) && s.start(groups, size) {
		return
	}
	for _, g := range groups {
		g.change(g.abandonLocked)
	}
}

// start opens the shard with the groups that were read, and begins their members' sessions. It
// returns false if the shard has ended.
func (s *shard) start(groups map[string]*group, size int64) bool {
	read := slices.Collect(maps.Values(groups)) // copied, because an open shard owns the map
	if !s.open(groups, size) {
		return false
	}
	for _, g := range read {
		g.resume()
	}
	return true
}

// read builds the groups that a log has, and returns the log's size in bytes.
func (s *shard) read(batches [][]byte) (groups map[string]*group, size int64) {
	kept := newLiveRecords()
	for _, raw := range batches {
		size += int64(len(raw))
		log.EachRecord(raw, kept.record)
	}
	groups = map[string]*group{}
	for id, of := range kept.offsets {
		g := newGroup(s, id)
		g.offsets = of
		groups[id] = g
		for _, o := range of {
			s.co.offsetBytes.used.Add(o.size) // also beyond the limit: the broker has accepted them
		}
	}
	for id, v := range kept.groups {
		if groups[id] == nil {
			groups[id] = newGroup(s, id) // if it has no data, resume removes it
		}
		groups[id].restore(v)
	}
	return groups, size
}

// liveRecords is the live content of a log.
type liveRecords struct {
	offsets map[string]map[offsetKey]committedOffset
	groups  map[string]*kmsg.GroupMetadataValue
}

func newLiveRecords() liveRecords {
	return liveRecords{map[string]map[offsetKey]committedOffset{}, map[string]*kmsg.GroupMetadataValue{}}
}

// record applies one record of the log.
func (kept liveRecords) record(at int64, key, value []byte) {
	if id, ok := groupOf(key); ok {
		kept.group(id, value)
		return
	}
	var k kmsg.OffsetCommitKey
	if isKnownVersion(key, offsetKeyVersion) && k.ReadFrom(key) == nil {
		kept.offset(&k, at, value)
	} // other keys are Kafka's, of neither kind
}

func (kept liveRecords) group(id string, value []byte) {
	v := new(kmsg.GroupMetadataValue)
	switch {
	case value == nil:
		delete(kept.groups, id)
	case isKnownVersion(value, groupValueVersion) && membersFit(value) && v.ReadFrom(slices.Clone(value)) == nil: // cloned, because the members retain parts of it
		kept.groups[id] = v
	}
}

// minMember is the minimum encoded size of a member in a group's record: 2 bytes for each of
// three strings, 4 for a timeout and for each of two byte slices, in version 0.
const minMember = 18

// membersFit reports whether a group's record can have as many members as it claims. kmsg would
// allocate more than a hundred bytes for each member, if the record has one byte for each.
func membersFit(value []byte) bool {
	r := kbin.Reader{Src: value}
	version := r.Int16()
	r.UnsafeString() // protocol type
	r.Int32()        // generation
	r.UnsafeNullableString()
	r.UnsafeNullableString() // protocol, leader
	if version >= 2 {
		r.Int64() // time
	}
	members := int(r.ArrayLen())
	return r.Ok() && members <= len(r.Src)/minMember
}

func (kept liveRecords) offset(k *kmsg.OffsetCommitKey, at int64, value []byte) {
	of := kept.offsets[k.Group]
	name := offsetKey{k.Topic, k.Partition}
	if value == nil {
		delete(of, name)
		if len(of) == 0 {
			delete(kept.offsets, k.Group)
		}
		return
	}
	var v kmsg.OffsetCommitValue
	if !isKnownVersion(value, offsetValueVersion) || v.ReadFrom(value) != nil {
		return
	}
	if of == nil {
		of = map[offsetKey]committedOffset{}
		kept.offsets[k.Group] = of
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
