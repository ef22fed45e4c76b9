package timingwheel

import (
	"sync/atomic"
	"unsafe"
)

// shardAffinity chooses the shard for a goroutine's timers: a shard of its own, if there are
// enough. It affects only speed.
//
// A goroutine is identified by the address of its stack, which costs nothing to read, and uses
// the shard in its entry of the table. When that shard is locked, it takes another at random
// and keeps it: two goroutines that collide by chance then stay apart; without the table they
// would collide at every call. (A random shard for each timer separates no goroutines, and moves
// every shard's memory from core to core; docs/decisions.md has the measurements.)
//
// All wheels share one table. An entry names a shard of every wheel: the sum of its index and
// its value, modulo the number of shards. The table is large, because goroutines that share an
// entry collide wherever it points.
type shardAffinity [1 << 14]atomic.Uint32 // written when goroutines meet, otherwise only read

var affinity shardAffinity

// entry returns the calling goroutine's entry in the table, and its index.
func (a *shardAffinity) entry() (e *atomic.Uint32, index uint32) {
	index = stackHash() % uint32(len(a))
	return &a[index], index
}

// stackHash returns a number that tends to be the same for one goroutine and to differ between
// goroutines. Stacks are at least 2 KiB apart.
func stackHash() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B1 >> 16
}
