package timingwheel

import "github.com/seed-782fa212/limbo/delayqueue"

// bucketState is where a bucket's timers are on their way.
//
//	free ──alloc──▶ waiting ──flush──▶ ready      (lowest level: handed over whole)
//	                   └─────flush──▶ cascading  (higher level, or timers pushed out)
//	free ──alloc──▶ ready                        (timers that are due already)
//
// waiting and cascading buckets are freed by the advancer, ready ones by the
// worker that finds them empty. All changes happen under the shard's lock.
type bucketState uint8

const (
	bucketFree bucketState = iota
	bucketWaiting
	bucketCascading
	bucketReady
)

// bucket is a list of timers: those of one level that share an expiration,
// from when the first of them came until a worker has taken the last.
//
// A bucket is an object that is handed on, not a place that is cleared: when
// it is flushed its place in the level is given up and the bucket itself goes
// to the workers, with its timers in it. So a million timers due in one tick
// change hands by one assignment (T15), and each can still be found and
// stopped by its handle wherever its bucket is (T4).
type bucket struct {
	head, tail uint32 // rows
	count      uint32
	level      uint8
	state      bucketState
	// moved says, on the lowest level, that a timer in here may have a later
	// deadline than the bucket's: Reset left it where it was. The flush looks at
	// each then, as it does on higher levels anyway.
	moved      bool
	expiration tick   // when its span begins; for ready: its timers' deadline
	seq        uint64 // tells this use of the record from earlier ones
	queued     delayqueue.Handle
}

// buckets is one shard's memory for buckets. The shard's lock guards it.
type buckets struct {
	table []bucket // index 0 is never used: it means "none"
	gone  []uint32 // freed records
	seq   uint64   // of the last bucket made; never repeats
}

func (a *buckets) alloc(s bucketState, level uint8, expiration tick) uint32 {
	var id uint32
	if k := len(a.gone); k > 0 {
		id = a.gone[k-1]
		a.gone = a.gone[:k-1]
	} else {
		if len(a.table) == 0 {
			a.table = make([]bucket, 1, 16)
		}
		id = uint32(len(a.table))
		a.table = append(a.table, bucket{})
	}
	a.seq++
	a.table[id] = bucket{state: s, level: level, expiration: expiration, seq: a.seq}
	return id
}

// release frees a record. A table that a backlog made large goes when its
// last bucket does.
func (a *buckets) release(id uint32) {
	a.table[id] = bucket{}
	a.gone = append(a.gone, id)
	if len(a.gone) == len(a.table)-1 && len(a.table) > 1024 {
		a.table, a.gone = nil, nil
	}
}

// holds says whether r's bucket is still there, and not a later use of its
// record.
func (a *buckets) holds(r run) bool {
	return int(r.bucket) < len(a.table) && a.table[r.bucket].seq == r.seq
}

// turn is when the advancer flushes a waiting bucket: on the lowest level when
// its timers are due, on a higher one ahead of that (see lead).
func (s *shard[V]) turn(b *bucket) tick { return b.expiration - lead(uint(b.level), s.bits) }
