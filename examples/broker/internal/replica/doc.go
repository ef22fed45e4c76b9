// Package replica is one broker's copy of a partition. A leader appends and serves records
// (partition.go, lookup.go), and knows which followers are in sync and which records are therefore
// committed (isr.go). A follower copies its leader's log (follower.go). Requests wait on a
// LeaderEpoch, a partition in one leader epoch (leader_epoch.go).
package replica
