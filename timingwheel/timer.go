package timingwheel

// Timer is a handle to one scheduled timer: eight bytes, comparable, free to
// copy and to keep for as long as you like. The zero Timer is no timer. Once
// its timer has run, was stopped or was handed back, a handle is stale for
// good: every method of the wheel returns false for it and touches nothing, even
// after the timer's memory has been used again. A handle means something
// only to the wheel that gave it out.
type Timer struct{ id uint64 }

// A Timer's bits: which shard, which node of that shard, and which of the
// node's successive timers.
//
//	63      56 55            32 31             0
//	[ shard  ][   generation   ][   node index  ]
//
// A node whose generation is used up is retired, not wrapped around: with 24
// bits that costs one node (16 bytes and the value) in 16 million timers.
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
