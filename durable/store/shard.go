package store

import "strings"

// Lanes is how many lanes a shard has.
const Lanes = 4

// ShardOf returns the shard of a key: 64-bit FNV-1a, mixed, and scaled to the number of shards. It
// is part of every engine's format. The part of a key after a zero byte is ignored, so a plan and
// its occurrences are in one shard.
func ShardOf(key string, shards int) int {
	if i := strings.IndexByte(key, 0); i >= 0 {
		key = key[:i]
	}
	return int((hash(key) >> 32) * uint64(shards) >> 32)
}

// LaneOf returns the lane of a topic: the lowest bits of the same hash, so that keys that are
// their own topics are in all lanes of a shard.
func LaneOf(topic string) int { return int(hash(topic) % Lanes) }

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	// FNV's high bits hardly depend on the last characters; the finalizer of
	// MurmurHash3 (Appleby) spreads them.
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
