package tour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
)

// A fetch has missed its wake-up if, when it was due, its record had been available for longer than
// maxWakeUp plus the longest stall.
func TestMissedWakeUp(t *testing.T) {
	const ms = time.Millisecond
	const index = 3
	d := &drive{
		ledger: newLedger(map[string]int{quietTopic: 8}),
		ids:    map[string][16]byte{quietTopic: {1}, steadyTopic: {2}},
		stalls: &stalls{},
		tour:   &tour{},
	}
	d.tour.lastFault.Store(int64(50 * ms))
	d.ledger.partition(quietTopic, index).ack(d.ledger.partition(quietTopic, index).send(), 0, 100*ms)
	d.stalls.record(5_000*ms, 5_200*ms)
	for _, w := range []struct {
		why          string
		offset       int64
		arrived, due time.Duration
		want         bool
	}{
		{"due soon after the record", 0, 60 * ms, 1_100 * ms, false},
		{"due long after the record", 0, 60 * ms, 1_101 * ms, true},
		{"arrived after the record", 0, 200 * ms, 1_200 * ms, false},
		{"arrived long before it was due", 0, 200 * ms, 1_201 * ms, true},
		{"another record, not acknowledged", 1, 60 * ms, 4_000 * ms, false},
		{"brokers were held up since it arrived", 0, 40 * ms, 4_000 * ms, false},
		{"a stall meanwhile", 0, 4_500 * ms, 5_700 * ms, false},
		{"longer than the stall meanwhile", 0, 4_500 * ms, 5_701 * ms, true},
	} {
		require.Equal(t, w.want, d.missedWakeUp(broker.FetchPosition{TopicID: [16]byte{1}, Index: index, Offset: w.offset}, w.arrived, w.due), w.why)
	}
	require.False(t, d.missedWakeUp(broker.FetchPosition{TopicID: [16]byte{3}}, 60*ms, time.Hour), "a topic that is not the drive's")

	d.checkExpired(broker.ExpiredFetch{Arrived: d.start.Add(60 * ms), MaxWait: 3 * time.Second, Waiting: []broker.FetchPosition{
		{TopicID: [16]byte{1}, Index: index + 1}, {TopicID: [16]byte{1}, Index: index},
	}})
	require.Equal(t, uint64(1), d.missedWakeUps.Load())
}
