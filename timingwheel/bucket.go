package timingwheel

// bucketState is where a bucket's timers are on their way.
//
//	free ──new──▶ waiting ──flush──▶ ready      (lowest level: handed over whole)
//	                 └─────flush──▶ cascading  (higher level, or timers pushed out)
//	free ──new──▶ ready                        (timers that are due already)
//
// The advancer frees waiting and cascading buckets, whoever takes out its last
// timer a ready one. All changes happen under the shard's lock.
type bucketState uint8

const (
	bucketWaiting bucketState = iota + 1
	bucketCascading
	bucketReady
)

// bucket is a list of timers: those of one level that share an expiration,
// from when the first of them came until the last has been taken, or has left.
//
// A bucket is an object that is handed on, not a place that is cleared: when
// it is flushed its place in the level is given up and the bucket itself goes
// to the workers, with its timers in it. So a million timers due in one tick
// change hands by one assignment (T15), and each can still be found and
// stopped by its handle wherever its bucket is (T4).
type bucket struct {
	head, tail uint32 // chunks
	count      uint32
	level      uint8
	state      bucketState
	// moved reports, on the lowest level, that a timer in here may have a later
	// deadline than the bucket's: Reset left it where it was. The flush looks at
	// each then, as it does on higher levels anyway.
	moved      bool
	expiration tick   // when its span begins; of a ready one: its timers' deadline
	seq        uint64 // tells this use of the record from earlier ones; never repeats
}

// bucketRef names a bucket from outside its shard's lock. The record may have
// been used again since: seq differs then.
type bucketRef struct {
	shard  uint32
	bucket uint32
	seq    uint64
}
