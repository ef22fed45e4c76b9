package timingwheel

import "math/bits"

// ranks locates the nodes of a packed slab: they are in order of their offsets, so a node's
// position is the number of kept offsets before its own. The words are a bit set, with the
// number of bits before each word (rank by popcount; Jacobson, 1989).
type ranks struct {
	words  [slabNodes / 64]uint64
	before [slabNodes / 64]uint16
}

func (r *ranks) has(off uint32) bool { return r.words[off/64]>>(off%64)&1 != 0 }

// rank returns the position of the node with an offset.
func (r *ranks) rank(off uint32) uint32 {
	w := off / 64 % uint32(len(r.words))
	return uint32(r.before[w]) + uint32(bits.OnesCount64(r.words[w]&(1<<(off%64)-1)))
}

// count fills in before, once all words are set.
func (r *ranks) count() {
	n := 0
	for w := range r.words {
		r.before[w] = uint16(n)
		n += bits.OnesCount64(r.words[w])
	}
}
