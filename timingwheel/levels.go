package timingwheel

import (
	"math/bits"
	"time"
)

// Level is the state of one level of the wheel, over all shards, as [Wheel.Levels] returns it:
// a circle of slots for buckets. A timer is in the slot of its deadline's span.
type Level struct {
	Span    time.Duration // of a bucket; at most the longest Duration
	Now     int           // the slot whose span is the present
	Pending int           // timers, in all slots together
	// Slots is the number of timers in each slot; there are twice as many slots as the wheel
	// size. The future follows Now, and continues at 0 after the last slot. A slot before Now
	// holds timers of the next lap, or timers that the advancer is about to move.
	Slots []int
}

// Levels returns the number of timers in each slot, lowest level first, for a picture of the
// wheel. It returns no level before the first timer. Timers that are cascading or wait for a
// worker are on no level.
//
// Levels locks the shards one after the other, each many times for some µs, so the numbers are
// not from one moment: a timer that cascades at the same time may be counted on both levels or
// on neither. It takes time for each bucket that is not empty, and 8 bytes for each slot.
func (w *Wheel[V]) Levels() []Level {
	w.mustBeMade()
	var all []Level
	for _, s := range w.shards {
		for l := 0; ; l++ {
			if l == len(all) {
				all = append(all, Level{})
			}
			if !s.count(l, &all[l]) {
				break
			}
		}
	}
	for l := range all {
		if len(all[l].Slots) == 0 { // no shard has it
			return all[:l:l]
		}
	}
	return all
}

// count adds the shard's timers on level l to into, or returns false if there is no such level.
// It locks the shard for one word of the bitmap at a time.
func (s *shard[V]) count(l int, into *Level) bool {
	for word := 0; ; word++ {
		s.mu.Lock()
		if l >= len(s.levels) {
			s.mu.Unlock()
			return false
		}
		v := &s.levels[l]
		if word == len(v.occupied) {
			s.mu.Unlock()
			return true
		}
		if len(into.Slots) == 0 {
			shift := uint(l) * s.sizeBits
			into.Slots = make([]int, len(v.ids))
			into.Span = time.Duration(s.shared.start(1 << shift))
			into.Now = int(v.at(s.shared.floor(s.shared.now()) >> shift))
		}
		s.lists.clearUnlinked()
		for used := v.occupied[word]; used != 0; used &= used - 1 {
			at := word*64 + bits.TrailingZeros64(used)
			n := int(s.lists.bucket(v.ids[at]).count)
			into.Slots[at] += n
			into.Pending += n
		}
		s.mu.Unlock()
	}
}
