package timingwheel

import (
	"sync/atomic"
	"unsafe"
)

// shardAffinity chooses the shard that a goroutine puts its timers into: the one it
// has to itself, as far as there are enough. Nothing depends on it but speed.
//
// A goroutine is known by where its stack lies, which costs nothing to read,
// and keeps to the shard that its place in the table names. When it finds that
// one locked it takes the next, and stays there: so two goroutines that met by
// chance part for good, where without the table they would meet at every call.
// (A random shard for each timer parts nobody, and moves every shard's memory
// from core to core; docs/decisions.md has the figures.)
type shardAffinity [256]atomic.Uint32 // written when goroutines meet, otherwise only read

// place is the calling goroutine's entry in the table.
func (a *shardAffinity) place() *atomic.Uint32 { return &a[stackHash()%uint32(len(a))] }

// stackHash is a number that tends to be the same for one goroutine and to
// differ between goroutines. Stacks are at least 2 KiB apart.
func stackHash() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B1 >> 16
}
