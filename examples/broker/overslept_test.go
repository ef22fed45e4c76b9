package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fetch has overslept if its record was there for more than wakeUp, and a stall on
// top, when it was due.
func TestOverslept(t *testing.T) {
	const ms = time.Millisecond
	key := partitionKey{topicID{1}, 3}
	d := &drive{
		ledger: newLedger(map[string]int{quietTopic: 8}),
		ids:    map[string]topicID{quietTopic: {1}, steadyTopic: {2}},
		stalls: &stalls{},
		tour:   &tour{},
	}
	d.tour.stormy.Store(int64(50 * ms))
	d.ledger.partition(quietTopic, key.index).ack(d.ledger.partition(quietTopic, key.index).send(), 0, 100*ms)
	d.stalls.note(5_000*ms, 5_200*ms)
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
		require.Equal(t, w.want, d.overslept(key, w.offset, w.arrived, w.due), w.why)
	}
	require.False(t, d.overslept(partitionKey{topicID{3}, 0}, 0, 60*ms, time.Hour), "a topic that is not the drive's")

	f := &fetch{arrived: d.start.Add(60 * ms), maxWait: 3 * time.Second, parts: []fetchPart{
		{p: &partition{key: partitionKey{topicID{1}, 4}}}, {p: &partition{key: key}},
	}}
	d.expired(f)
	require.Equal(t, uint64(1), d.slept.Load())
}
