package tour

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
)

// A fetch missed its wake-up if it expired although a record that it waits for had been
// acknowledged long before: a wake-up was lost. This is decided where the fetch expires, by the
// time at which it was due. The latency of its response proves nothing, least of all on a busy
// machine.

// maxWakeUp is how long fetches may still wait after their record is acknowledged, on a machine
// that does not stall.
const maxWakeUp = time.Second

// checkExpired checks an expired fetch of a consumer.
func (d *drive) checkExpired(f broker.ExpiredFetch) {
	due := f.Arrived.Add(f.MaxWait).Sub(d.start)
	for _, at := range f.Waiting {
		if d.missedWakeUp(at, f.Arrived.Sub(d.start), due) {
			d.missedWakeUps.Add(1)
			return
		}
	}
}

// missedWakeUp reports whether the record at an offset had been available for too long when a fetch
// that waited for it was due. The times are since the drive's start.
func (d *drive) missedWakeUp(at broker.FetchPosition, arrived, due time.Duration) bool {
	acked := d.ackedAt(at)
	if acked == 0 || !d.tour.faultFreeSince(arrived) { // not while faults hold up brokers
		return false
	}
	available := max(acked, arrived)
	return due-available > maxWakeUp+d.stalls.worst(available, due)
}

// ackedAt returns when the record at an offset was acknowledged, 0 if it is not yet.
func (d *drive) ackedAt(at broker.FetchPosition) time.Duration {
	for topic, id := range d.ids {
		if id == at.TopicID {
			return d.ledger.partition(topic, at.Index).ackedAt(at.Offset)
		}
	}
	return 0
}
