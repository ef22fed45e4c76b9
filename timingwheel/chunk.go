package timingwheel

// chunk is a link in a bucket's list of timers: up to nine of them, by index, in
// the order in which they came. An unrolled linked list (Shao, Reppy and Appel,
// 1994).
//
// Timers are scheduled in one order and come due in another, so the nodes of a
// bucket lie anywhere, and each is a cache miss. Linked to one another they
// would be missed one after the other, for each tells where the next one is; a
// chunk tells it of nine at once, and the processor fetches them together.
//
// A chunk is the value of a node whose place is the chunk's bucket. With what a
// node has besides, it fills one cache line.
//
// A timer's place is its chunk's index and its slot in it:
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
