package timingwheel

// run names a bucket whose timers are due: the unit in which the advancer
// hands timers to the workers.
type run struct {
	shard  uint32
	bucket uint32
	seq    uint64 // of the bucket; the record may have been used again since
}

// runs is a first-in first-out queue of runs: the ready list. It holds
// buckets, not timers, and they hold their timers where they are, so a backlog
// costs no memory but the queue's 16 bytes a bucket and nothing ever blocks on
// it being full.
type runs struct {
	ring []run // length 0 or a power of two
	head int
	n    int
}

const minRing = 64

func (r *runs) push(x run) {
	if r.n == len(r.ring) {
		r.resize(max(minRing, 2*r.n))
	}
	r.ring[(r.head+r.n)&(len(r.ring)-1)] = x
	r.n++
}

func (r *runs) front() run { return r.ring[r.head] }

func (r *runs) back() run { return r.ring[(r.head+r.n-1)&(len(r.ring)-1)] }

func (r *runs) pop() {
	r.head = (r.head + 1) & (len(r.ring) - 1)
	r.n--
	if len(r.ring) > minRing && r.n <= len(r.ring)/8 {
		r.resize(len(r.ring) / 4) // a quarter, so that growth and shrinkage do not meet
	}
}

func (r *runs) resize(size int) {
	ring := make([]run, max(minRing, size))
	for i := range r.n {
		ring[i] = r.ring[(r.head+i)&(len(r.ring)-1)]
	}
	r.ring, r.head = ring, 0
}
