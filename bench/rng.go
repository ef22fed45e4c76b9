package main

import (
	"math"
	"time"
)

// rng is SplitMix64. It takes a few instructions, and is as short in Java, so that
// every rival gets the same delays.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n), for n up to 2^32.
func (r *rng) below(n uint64) uint64 { return r.next() >> 32 * n >> 32 }

// delay returns a duration in [from, to), in whole microseconds. from and to are at
// most 71 minutes apart.
func (r *rng) delay(from, to time.Duration) time.Duration {
	return from + time.Duration(r.below(uint64((to-from)/time.Microsecond)))*time.Microsecond
}

// longDelay returns the delay of a timer that stays pending, and shortDelay that of a timer that is
// stopped at once.
func (r *rng) longDelay() time.Duration  { return r.delay(time.Minute, time.Hour) }
func (r *rng) shortDelay() time.Duration { return r.delay(time.Second, 31*time.Second) }

// shuffled returns the numbers below n in random order.
func (r *rng) shuffled(n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		j := r.below(uint64(i + 1))
		p[i] = p[j]
		p[j] = uint32(i)
	}
	return p
}

// fraction returns a number in [0, 1).
func (r *rng) fraction() float64 { return float64(r.next()>>11) / (1 << 53) }

// normal returns a normally distributed number with mean 0 and deviation 1 (Box and
// Muller).
func (r *rng) normal() float64 {
	return math.Sqrt(-2*math.Log(1-r.fraction())) * math.Cos(2*math.Pi*r.fraction())
}
