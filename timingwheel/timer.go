package timingwheel

// Timer is a handle to one scheduled timer: eight bytes, comparable, free to copy and to keep
// for as long as you like. The zero Timer is no timer. Once its timer has run, was stopped or
// was returned, a handle is stale permanently: every method of the wheel returns false for it
// and changes nothing, even after the timer's memory has been reused. A handle is meaningful
// only to the wheel that issued it.
type Timer struct{ id uint64 }

// A Timer's bits: the shard, the node in that shard, and the generation, which distinguishes
// the node's successive timers.
//
//	63      56 55            32 31             0
//	[ shard  ][   generation   ][   node index  ]
//
// A node whose generations are used up is retired, not wrapped around: with 24 bits that costs
// one node (16 bytes and the value) in 16 million timers.
const (
	shardBits = 8
	genBits   = 24
	indexBits = 32
	maxGen    = 1<<genBits - 1
)

func makeTimer(shard, gen, index uint32) Timer {
	return Timer{uint64(shard)<<(genBits+indexBits) | uint64(gen)<<indexBits | uint64(index)}
}

func (t Timer) shard() uint32 { return uint32(t.id >> (genBits + indexBits)) }
func (t Timer) gen() uint32   { return uint32(t.id>>indexBits) & maxGen }
func (t Timer) index() uint32 { return uint32(t.id) }
