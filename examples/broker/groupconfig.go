package main

import (
	"fmt"
	"time"
)

// groupConfig holds every bound of what this broker keeps for consumer groups.
// The zero value is not usable: start from defaultGroupConfig.
type groupConfig struct {
	initialRebalanceDelay time.Duration // how long the first join of an empty group waits for others; each that comes begins it anew; 0: not at all

	minSession   time.Duration // session timeouts below are refused; Kafka's is 6 s
	maxSession   time.Duration // those above are refused
	maxRebalance time.Duration // rebalance timeouts above count as this

	maxGroups      int   // coordinated here at once
	maxMembers     int   // of one group, ids that were given out and not used yet among them
	maxID          int   // bytes of a group's id, and of an instance's
	maxMemberBytes int64 // of members' metadata and assignments, over all groups

	maxOffsetBytes    int64 // of committed offsets with their names and metadata, over all groups; see offsetSize
	maxOffsetMetadata int   // bytes of one offset's metadata

	commitTimeout       time.Duration // for a commit to reach the in-sync replicas
	offsetsCompactBytes int64         // written to a partition of offsets before they are written anew and what was before is deleted
}

// defaultGroupConfig is for groups of tests and tours as well as for real ones.
// A partition of offsets may hold twice what is live and what was written since,
// so maxOffsetBytes must stay well below half of a partition's retention.
func defaultGroupConfig() groupConfig {
	return groupConfig{
		initialRebalanceDelay: 500 * time.Millisecond,
		minSession:            100 * time.Millisecond,
		maxSession:            30 * time.Minute,
		maxRebalance:          30 * time.Minute,
		maxGroups:             10_000,
		maxMembers:            1000,
		maxID:                 255,
		maxMemberBytes:        16 << 20,
		maxOffsetBytes:        8 << 20,
		maxOffsetMetadata:     4096,
		commitTimeout:         5 * time.Second,
		offsetsCompactBytes:   1 << 20,
	}
}

// validate names the first field that cannot work.
func (c *groupConfig) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"min session", int64(c.minSession)},
		{"max session", int64(c.maxSession)},
		{"max rebalance", int64(c.maxRebalance)},
		{"max groups", int64(c.maxGroups)},
		{"max members", int64(c.maxMembers)},
		{"max id", int64(c.maxID)},
		{"max member bytes", c.maxMemberBytes},
		{"max offset bytes", c.maxOffsetBytes},
		{"max offset metadata", int64(c.maxOffsetMetadata)},
		{"commit timeout", int64(c.commitTimeout)},
		{"offsets compact bytes", c.offsetsCompactBytes},
	} {
		if f.value <= 0 {
			return fmt.Errorf("broker: groups: %s must be positive, not %d", f.name, f.value)
		}
	}
	switch {
	case c.initialRebalanceDelay < 0:
		return fmt.Errorf("broker: groups: initial rebalance delay must not be negative: %v", c.initialRebalanceDelay)
	case c.minSession > c.maxSession:
		return fmt.Errorf("broker: groups: min session %v is more than max session %v", c.minSession, c.maxSession)
	}
	return nil
}
