// Package group coordinates consumer groups: those of the partitions of the offsets topic that this
// broker leads. A file whose name begins with a number handles the request of that API key.
//
// Read coordinator.go first: the operations that wait, their keys, and the lock order. The
// lifecycle of a group is in group.go and member.go, that of offsets in 08_offset_commit.go. Both
// are stored in one log: records.go has its records, groupslog.go decides when a group is written,
// and queue.go, load.go and compact.go write, read and compact the log.
package group
