// Package group coordinates consumer groups: those of the partitions of the offsets topic
// that this broker leads. A file that is named by a number has the request of that API key.
//
// Read coordinator.go first: what waits, on what, and the order of locks. A group's life is
// in group.go and member.go; the offsets' in 08_offset_commit.go. Both are in one log: what
// groups write there is in groupslog.go, and how it is written, read and compacted in
// offsetslog.go, offsetsload.go and offsetscompact.go.
package group
