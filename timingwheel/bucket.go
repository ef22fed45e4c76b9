package timingwheel

// bucketState is a bucket's stage between the first timer and the last.
//
//	free ──new──▶ waiting ──flush──▶ ready      (lowest level)
//	                 └─────flush──▶ cascading  (higher level, or deadlines extended)
//	free ──new──▶ ready                        (timers that are due already)
//
// The advancer frees waiting and cascading buckets; the goroutine that removes a ready bucket's
// last timer frees that bucket. All changes happen under the shard's lock.
type bucketState uint8

const (
	bucketWaiting bucketState = iota + 1
	bucketCascading
	bucketReady
)

// bucket is a list of timers: those of one level that share an expiration, from the arrival of
// the first until the last has been taken or has left.
//
// A flush passes the bucket itself on, instead of clearing it: the bucket gives up its slot in
// the level and goes to the workers with its timers in it. So one assignment moves a million
// timers that are due in one tick without a stall (T15), and each can still be found and stopped
// by its handle wherever its bucket is (Stop is exact, T4).
type bucket struct {
	head, tail uint32 // chunks
	count      uint32
	level      uint8
	state      bucketState
	// extended reports, on the lowest level, that a timer in here may have a later deadline than
	// the bucket's, because Reset left it here. The flush then checks each timer, as it always
	// does on higher levels.
	extended   bool
	expiration tick   // when its span begins; when ready: its timers' deadline
	seq        uint64 // distinguishes this use of the record from earlier ones; never repeats
}

// bucketRef names a bucket from outside its shard's lock. The record may have been reused
// since, in which case seq differs.
type bucketRef struct {
	shard  uint32
	bucket uint32
	seq    uint64
}
