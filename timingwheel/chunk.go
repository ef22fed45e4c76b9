package timingwheel

// chunk is a link in a bucket's list of timers. It holds the indices of up to nine timers in
// the order in which they came: an unrolled linked list (Shao, Reppy and Appel, 1994).
//
// Timers are scheduled in one order and come due in another, so the nodes of a bucket are
// scattered in memory and each is a cache miss. If nodes were linked to each other, the misses
// would be sequential, because each node would hold the address of the next; a chunk holds
// nine, and the processor fetches them together.
//
// With the other fields of its node, a chunk fills one cache line.
type chunk struct {
	next, prev uint32 // in the bucket's list
	used       uint16 // a bit for each slot that holds a timer; never 0 in a bucket
	slots      [chunkSlots]uint32
}

const (
	chunkSlots = 9
	slotBits   = 4
	slotMask   = 1<<slotBits - 1
)

// atSlot is the position of a timer:
//
//	31              4 3    0
//	[ chunk's index ][ slot ]
func atSlot(chunk uint32, slot int) position { return position(chunk<<slotBits | uint32(slot)) }

// chunk returns the chunk of a timer's position.
func (p position) chunk() uint32 { return uint32(p) >> slotBits }

// slotBit returns the bit of a timer's position in its chunk's used.
func (p position) slotBit() uint16 { return 1 << (p & slotMask) }

// inBucket is the position of a chunk.
func inBucket(id uint32) position { return position(id) }

// bucket returns the bucket of a chunk's position.
func (p position) bucket() uint32 { return uint32(p) }
