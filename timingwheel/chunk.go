package timingwheel

// chunk is a link in a bucket's list of timers. It holds the indices of up to nine timers in
// the order in which they came: an unrolled linked list (Shao, Reppy and Appel, 1994).
//
// Timers are scheduled in one order and come due in another, so the nodes of a bucket are
// scattered in memory and each is a cache miss. If nodes were linked to each other, the misses
// would be sequential, because each node would hold the address of the next; a chunk holds
// nine, and the processor fetches them together.
//
// A chunk is the value of a node whose position is the chunk's bucket. With the other fields of
// the node, it fills one cache line.
//
// A timer's position is its chunk's index and its slot in it:
//
//	31              4 3    0
//	[ chunk's index ][ slot ]
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
