// Package group coordinates consumer groups: those of the partitions of the offsets topic
// that this broker leads. A file that is named by a number has the request of that API key.
//
// Read coordinator.go first: what waits, on what, and the order of locks. A group's life is
// in group.go and member.go; the offsets' in 08_offset_commit.go. Both are in one log: its
// records are in records.go, when a group is written is in groupslog.go, and how the log is
// written, read and compacted in queue.go, load.go and compact.go.
package group
