// Package replica is one broker's copy of a partition: as a leader, what it appends and serves
// (partition.go, lookup.go), which followers are in sync, and which records are therefore committed
// (isr.go); as a follower, how it copies its leader's log (follower.go). Requests wait on a
// LeaderEpoch, a partition in one leader epoch (leader_epoch.go).
package replica
