package timingwheel

import (
	"sync/atomic"
	"unsafe"
)

// shardAffinity chooses the shard for a goroutine's timers: a shard of its own, if there are
// enough. It affects only speed.
//
// A goroutine is identified by the address of its stack, which costs nothing to read, and uses
// the shard in its entry of the table. When that shard is locked, it takes the next and keeps
// it: two goroutines that collide by chance then stay apart; without the table they would
// collide at every call. (A random shard for each timer separates no goroutines, and moves
// every shard's memory from core to core; docs/decisions.md has the measurements.)
type shardAffinity [256]atomic.Uint32 // written when goroutines meet, otherwise only read

// entry returns the calling goroutine's entry in the table.
func (a *shardAffinity) entry() *atomic.Uint32 { return &a[stackHash()%uint32(len(a))] }

// stackHash returns a number that tends to be the same for one goroutine and to differ between
// goroutines. Stacks are at least 2 KiB apart.
func stackHash() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B1 >> 16
}
