package timingwheel

import "math/bits"

// level is one wheel: a circle of slots for buckets. With wheel size n, a bucket of level l
// spans n^l ticks, and the circle has 2n slots.
//
// The circle has twice the slots that a bucket of the level above spans, so that such a bucket fits
// into this circle while it is still some way ahead: it cascades before its first timer is due,
// a little at a time, and no timer has to wait for the cascade (late by at most one tick, T2).
// See shard.flushTick.
type level struct {
	ids      []uint32 // buckets; 0: empty slot
	occupied []uint64 // a bit for each slot
}

func newLevel(sizeBits uint) level {
	n := 2 << sizeBits
	return level{make([]uint32, n), make([]uint64, (n+63)/64)}
}

// at returns the slot of the bucket that begins that many spans after the start.
func (v *level) at(spans tick) uint { return uint(spans) & uint(len(v.ids)-1) }

func (v *level) put(at uint, id uint32) {
	v.ids[at] = id
	v.occupied[at/64] |= 1 << (at % 64)
}

// clear frees a slot.
func (v *level) clear(at uint) {
	v.ids[at] = 0
	v.occupied[at/64] &^= 1 << (at % 64)
}

// first returns the first bucket at or after the given span, searching once around, or 0 if the
// level has none. It checks 64 slots at a time.
func (v *level) first(from tick) uint32 {
	start := v.at(from)
	words := uint(len(v.occupied))
	at, mask := start/64, ^uint64(0)<<(start%64)
	for range words + 1 {
		if w := v.occupied[at] & mask; w != 0 {
			return v.ids[at*64+uint(bits.TrailingZeros64(w))]
		}
		at, mask = (at+1)%words, ^uint64(0)
	}
	return 0
}

// levelFor returns the lowest level whose circle reaches deadline d from clock c: less than one
// lap ahead in that level's spans. It takes two or three comparisons; a division of the
// distance's logarithm costs more. The masks change nothing: they spare the compiler the case
// of a shift by 64 or more.
func levelFor(d, c tick, sizeBits uint) (l uint) {
	for shift := uint(0); d>>(shift&63)-c>>(shift&63) >= 2<<(sizeBits&63); shift += sizeBits {
		l++
	}
	return l
}

// cascadeLead is how long before its expiration a bucket of level l begins to cascade: half its
// span, and 0 on the lowest level.
//
// It is long enough: the timers of a bucket that is half a span ahead are less than 1.5 n^l
// ahead, so the level below reaches them all. And it is short enough: d was out of reach of the
// level below, so d > c + (2n-1) n^(l-1), and its bucket begins after c + n^l - n^(l-1), which
// is at least half a span after c.
func cascadeLead(l, sizeBits uint) tick { return 1 << (l * sizeBits) >> 1 }

func (v *level) bytes() int { return 4*len(v.ids) + 8*len(v.occupied) }
