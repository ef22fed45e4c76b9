package group

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Config holds all limits of the data that this broker keeps for consumer groups. The zero value of
// a field means its default.
type Config struct {
	InitialRebalanceDelay time.Duration // how long the first rebalance of an empty group waits for more members; each new member restarts the wait; NoDelay: no wait

	MinSession   time.Duration // shorter session timeouts are refused; Kafka's is 6 s
	MaxSession   time.Duration // longer session timeouts are refused
	MaxRebalance time.Duration // longer rebalance timeouts are reduced to this

	MaxGroups      int   // coordinated by this broker at once
	MaxMembers     int   // of one group, including ids that were given out and are not used yet
	MaxID          int   // bytes of a group's id, and of the names of an instance, a protocol and its type
	MaxMemberBytes int64 // of members' metadata and assignments, over all groups; the log also holds the chosen metadata and the assignments

	MaxOffsetBytes    int64 // of committed offsets with their names and metadata, over all groups; see offsetSize
	MaxOffsetMetadata int   // bytes of one offset's metadata

	MaxBatch            int           // bytes of records, of groups and offsets, that are written together; a larger record is written alone
	CommitTimeout       time.Duration // for a batch of commits or of a group to reach the in-sync replicas
	OffsetsCompactBytes int64         // growth of a partition of groups and offsets that starts its compaction: live records are rewritten, older ones deleted
}

// WithDefaults replaces zero values by defaults and refuses values that are out of range.
//
// A partition of groups and offsets has no retention. While a snapshot is written, the partition
// holds its live data twice, and the writes since the last snapshot: as much again, or
// OffsetsCompactBytes. That is about three times MaxMemberBytes and MaxOffsetBytes together, if one
// partition has all groups. It may exceed the bytes that a replica accepts without its followers
// (replica.Config.MaxUncommitted), because a snapshot's batches are replicated one after the other.
// The broker must accept each batch, so MaxBatch should be below the broker's Config.MaxBatch.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Groups.InitialRebalanceDelay", &c.InitialRebalanceDelay, 500*time.Millisecond, NoDelay, time.Hour)
	option.Fill(&b, "Groups.MinSession", &c.MinSession, 100*time.Millisecond, 1, 24*time.Hour)
	option.Fill(&b, "Groups.MaxSession", &c.MaxSession, 30*time.Minute, c.MinSession, 24*time.Hour)
	option.Fill(&b, "Groups.MaxRebalance", &c.MaxRebalance, 30*time.Minute, 1, 24*time.Hour)
	option.Fill(&b, "Groups.MaxGroups", &c.MaxGroups, 10_000, 1, 1<<30)
	option.Fill(&b, "Groups.MaxMembers", &c.MaxMembers, 1000, 1, 1<<20)
	option.Fill(&b, "Groups.MaxID", &c.MaxID, 255, 1, maxString-uniqueLen)
	option.Fill(&b, "Groups.MaxMemberBytes", &c.MaxMemberBytes, 16<<20, 1, 1<<40)
	option.Fill(&b, "Groups.MaxOffsetBytes", &c.MaxOffsetBytes, 8<<20, 1, 1<<40)
	option.Fill(&b, "Groups.MaxOffsetMetadata", &c.MaxOffsetMetadata, 4096, 1, 1<<15-1)
	option.Fill(&b, "Groups.MaxBatch", &c.MaxBatch, 256<<10, 1, 1<<30)
	option.Fill(&b, "Groups.CommitTimeout", &c.CommitTimeout, 5*time.Second, 1, time.Hour)
	option.Fill(&b, "Groups.OffsetsCompactBytes", &c.OffsetsCompactBytes, 1<<20, 1, 1<<40)
	return c, b.Err
}

// maxString is the maximum length of a string in the log. A member's id is the name of its instance
// and uniqueLen more bytes.
const maxString = 1<<15 - 1

// NoDelay makes the first rebalance of an empty group begin at once.
const NoDelay time.Duration = -1
