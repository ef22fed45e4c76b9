// Package log is a partition's records in memory: batches as they came, the epochs of
// the leaders that wrote them, and the sequences of idempotent producers. Nothing here
// locks, waits or knows of a network.
package log
