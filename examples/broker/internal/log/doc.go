// Package log keeps a partition's records in memory: the batches as they were received, the epochs
// of the leaders that wrote them, and the sequences of idempotent producers. It does no locking,
// waiting or I/O.
package log
