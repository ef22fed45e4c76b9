// Package replica is one broker's copy of a partition: what it takes as a leader and what
// it answers (partition.go, lookup.go), who of its followers is in sync and what is
// committed thereby (isr.go), and how it follows another leader (follower.go). A reign, a
// partition under one leader, is what requests wait on (reign.go).
package replica
