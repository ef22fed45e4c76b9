package group

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Config holds every bound of what this broker keeps for consumer groups.
// The zero value of a field is its default.
type Config struct {
	InitialRebalanceDelay time.Duration // how long the first join of an empty group waits for others; each that comes begins it anew; NoDelay: not at all

	MinSession   time.Duration // session timeouts below are refused; Kafka's is 6 s
	MaxSession   time.Duration // those above are refused
	MaxRebalance time.Duration // rebalance timeouts above count as this

	MaxGroups      int   // coordinated here at once
	MaxMembers     int   // of one group, ids that were given out and not used yet among them
	MaxID          int   // bytes of a group's id, and of the names of an instance, a protocol and its type
	MaxMemberBytes int64 // of members' metadata and assignments, over all groups; what was chosen and assigned is in the log, too

	MaxOffsetBytes    int64 // of committed offsets with their names and metadata, over all groups; see offsetSize
	MaxOffsetMetadata int   // bytes of one offset's metadata

	MaxBatch            int           // bytes of records, of groups and offsets, that are written together; a larger record is alone
	CommitTimeout       time.Duration // for a batch of commits or of a group to reach the in-sync replicas
	OffsetsCompactBytes int64         // written to a partition of groups and offsets before they are written anew and what was before is deleted
}

// WithDefaults fills in what is zero and refuses what is out of range.
//
// A partition of groups and offsets has no retention. While a snapshot is written it holds
// what is live twice, and as much again, or OffsetsCompactBytes, was written since the last
// one: some three times MaxMemberBytes and MaxOffsetBytes together, if one partition has all
// groups. It does not matter that this is more than a replica takes without its followers
// (replica.Config.MaxUncommitted): a snapshot's batches are replicated one after the other.
// Each must be one that the broker takes: so MaxBatch should be below its bound, broker
// Config.MaxBatch.
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

// maxString is how long a string of the log may be. A member's id is its instance's name and
// uniqueLen bytes more.
const maxString = 1<<15 - 1

// NoDelay has the first rebalance of an empty group begin at once.
const NoDelay time.Duration = -1
