package timingwheel

import (
	"math/bits"
	"time"
)

// Level is a level of the wheel, of all shards together, as [Wheel.Levels] finds it: a
// circle of places for buckets. A timer stands at the place of its deadline's span.
type Level struct {
	Span    time.Duration // of a bucket; at most the longest Duration
	Now     int           // the place whose span is the present
	Pending int           // timers, of all places together
	// Places is how many timers are at each place: twice the wheel size. What is to come
	// follows Now, and goes on at 0 after the last. A place before Now holds the timers
	// of a lap ahead, or those that the advancer is about to move on.
	Places []int
}

// Levels returns what stands where, the lowest level first, for a picture of the wheel;
// no level before the first timer. Timers that are cascading, or wait for a worker, are on
// no level.
//
// Shards are locked one after the other, each many times for some µs. So the numbers are
// not those of one moment: a timer that cascades meanwhile may be counted on both levels
// or on neither. It takes time for each bucket that is not empty, and 8 bytes for each
// place.
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
		if len(all[l].Places) == 0 { // no shard has it
			return all[:l:l]
		}
	}
	return all
}

// count adds what is on level l to what was found in other shards; false if there is no
// such level. It takes the lock, for a word of the bitmap at a time.
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
		if len(into.Places) == 0 {
			shift := uint(l) * s.bits
			into.Places = make([]int, len(v.ids))
			into.Span = time.Duration(s.shared.start(1 << shift))
			into.Now = int(v.at(s.shared.floor(s.shared.now()) >> shift))
		}
		s.lists.clearUnlinked()
		for used := v.occupied[word]; used != 0; used &= used - 1 {
			at := word*64 + bits.TrailingZeros64(used)
			n := int(s.lists.bucket(v.ids[at]).count)
			into.Places[at] += n
			into.Pending += n
		}
		s.mu.Unlock()
	}
}
