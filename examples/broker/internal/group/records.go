package group

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// The records of a partition of the offsets topic, in Kafka's format. A key names a group, and for
// an offset also the partition. The latest record of a key is valid; one without a value deletes
// the key.

// Versions of keys and values: the ones that every broker can read.
const (
	offsetKeyVersion   = 1
	offsetValueVersion = 3
	groupKeyVersion    = 2
	groupValueVersion  = 3
)

func encodeOffsetKey(group string, k offsetKey) []byte {
	key := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: k.topic, Partition: k.partition}
	return key.AppendTo(nil)
}

func offsetRecord(group string, k offsetKey, o *committedOffset) log.Record {
	value := kmsg.OffsetCommitValue{
		Version:         offsetValueVersion,
		Offset:          o.offset,
		LeaderEpoch:     o.leaderEpoch,
		Metadata:        o.metadata,
		CommitTimestamp: o.committedAt,
	}
	return log.Record{Key: encodeOffsetKey(group, k), Value: value.AppendTo(nil)}
}

// offsetTombstone deletes an offset.
func offsetTombstone(group string, k offsetKey) log.Record {
	return log.Record{Key: encodeOffsetKey(group, k)}
}

func encodeGroupKey(id string) []byte {
	key := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: id}
	return key.AppendTo(nil)
}

// groupTombstone deletes a group.
func groupTombstone(id string) log.Record { return log.Record{Key: encodeGroupKey(id)} }

// recordLocked returns the group's record for the log: without members, unless they have
// assignments.
func (g *group) recordLocked(members bool) log.Record {
	value := kmsg.GroupMetadataValue{
		Version:               groupValueVersion,
		ProtocolType:          g.protocolType,
		Generation:            g.generation,
		CurrentStateTimestamp: time.Now().UnixMilli(),
	}
	if members {
		value.Protocol, value.Leader = &g.protocol, &g.leader
		for _, m := range g.listLocked() {
			vm := kmsg.NewGroupMetadataValueMember()
			vm.MemberID, vm.InstanceID, vm.ClientHost = m.id, m.instance, m.host
			vm.SessionTimeoutMillis, vm.RebalanceTimeoutMillis = int32(m.session.Milliseconds()), int32(m.rebalance.Milliseconds())
			vm.Subscription, vm.Assignment = m.metadata(g.protocol), m.assignment
			value.Members = append(value.Members, vm)
		}
	}
	return log.Record{Key: encodeGroupKey(g.id), Value: value.AppendTo(nil)}
}

// groupOf returns the group's id, if the key is that of a group record.
func groupOf(key []byte) (id string, ok bool) {
	var k kmsg.GroupMetadataKey
	ok = isKnownVersion(key, groupKeyVersion) && k.ReadFrom(key) == nil && k.Version == groupKeyVersion
	return k.Group, ok
}

// isKnownVersion reports whether this package knows the version of a key or value. kmsg must not
// get others: it spins on some that are malformed.
func isKnownVersion(b []byte, newest uint16) bool {
	return len(b) >= 2 && binary.BigEndian.Uint16(b) <= newest
}
