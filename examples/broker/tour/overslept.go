package tour

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
)

// Was a fetch left sleeping on data? Then it has expired, though a record that it waits
// for had been acknowledged long before: a wake-up was lost. That is judged where the
// fetch expires, by the time it was due; how long its answer is under way says nothing,
// least of all on a busy machine.

// wakeUp is how long after a record is acknowledged its fetches may still wait, on a
// machine that does not stall.
const wakeUp = time.Second

// expired judges a consumer's fetch that has expired.
func (d *drive) expired(f broker.ExpiredFetch) {
	due := f.Arrived.Add(f.MaxWait).Sub(d.start)
	for _, at := range f.Waiting {
		if d.overslept(at, f.Arrived.Sub(d.start), due) {
			d.slept.Add(1)
			return
		}
	}
}

// overslept reports whether a record at an offset had been there for too long when a
// fetch was due that had arrived for it. The times are since the drive's start.
func (d *drive) overslept(at broker.FetchPosition, arrived, due time.Duration) bool {
	acked := d.ackedAt(at)
	if acked == 0 || !d.tour.calm(arrived) { // not while brokers are held up on purpose
		return false
	}
	there := max(acked, arrived)
	return due-there > wakeUp+d.stalls.worst(there, due)
}

// ackedAt is when the record at an offset was acknowledged, 0 if it is not yet.
func (d *drive) ackedAt(at broker.FetchPosition) time.Duration {
	for topic, id := range d.ids {
		if id == at.TopicID {
			return d.ledger.partition(topic, at.Index).ackedAt(at.Offset)
		}
	}
	return 0
}
