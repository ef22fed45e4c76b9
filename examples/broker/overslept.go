package main

import "time"

// Was a fetch left sleeping on data? Then it has expired, though a record that it waits
// for had been acknowledged long before: a wake-up was lost. That is judged where the
// fetch expires, by the time it was due; how long its answer is under way says nothing,
// least of all on a busy machine.

// wakeUp is how long after a record is acknowledged its fetches may still wait, on a
// machine that does not stall.
const wakeUp = time.Second

// expired judges a consumer's fetch that has expired.
func (d *drive) expired(f *fetch) {
	due := f.arrived.Add(f.maxWait).Sub(d.start)
	for i := range f.parts {
		if part := &f.parts[i]; d.overslept(part.p.key, part.offset, f.arrived.Sub(d.start), due) {
			d.slept.Add(1)
			return
		}
	}
}

// overslept reports whether a record at an offset had been there for too long when a
// fetch was due that had arrived for it. The times are since the drive's start.
func (d *drive) overslept(key partitionKey, offset int64, arrived, due time.Duration) bool {
	acked := d.ackedAt(key, offset)
	if acked == 0 || !d.tour.calm(arrived) { // not while brokers are held up on purpose
		return false
	}
	there := max(acked, arrived)
	return due-there > wakeUp+d.stalls.worst(there, due)
}

// ackedAt is when the record at an offset was acknowledged, 0 if it is not yet.
func (d *drive) ackedAt(key partitionKey, offset int64) time.Duration {
	for topic, id := range d.ids {
		if id == key.topic {
			return d.ledger.partition(topic, key.index).ackedAt(offset)
		}
	}
	return 0
}
