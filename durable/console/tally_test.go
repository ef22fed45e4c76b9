package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/histogram"
)

// Counters that restart at zero never give a negative rate, and no known run is lost.
func TestTally(t *testing.T) {
	begun := time.Unix(1e9, 0).UTC()
	worker := func(name string, since int, done uint64) durable.WorkerInfo {
		var late histogram.Durations
		for range done {
			late.Add(time.Millisecond)
		}
		return durable.WorkerInfo{Name: name, Live: true, Since: begun.Add(time.Duration(since) * time.Second), Done: done, Late: late}
	}
	type poll struct {
		at        int
		scheduled uint64
		workers   []durable.WorkerInfo
	}
	for name, x := range map[string]struct {
		polls                []poll
		scheduled, completed float64
	}{
		"counts from before the first poll do not count": {
			polls:     []poll{{0, 500, []durable.WorkerInfo{worker("a", -9, 100)}}, {2, 520, []durable.WorkerInfo{worker("a", -9, 104)}}},
			scheduled: 10, completed: 2,
		},
		"a worker that is made between two polls counts as a whole": {
			polls: []poll{{0, 0, nil}, {2, 0, []durable.WorkerInfo{worker("a", 1, 8)}}}, completed: 4,
		},
		"a worker that was not seen before counts from then on": {
			polls: []poll{{0, 0, nil}, {1, 0, []durable.WorkerInfo{worker("a", -9, 800)}}, {2, 0, []durable.WorkerInfo{worker("a", -9, 802)}}}, completed: 1,
		},
		"a worker and a store that start again": {
			polls: []poll{
				{0, 100, []durable.WorkerInfo{worker("a", -9, 100)}}, {1, 110, []durable.WorkerInfo{worker("a", -9, 110)}},
				{2, 4, []durable.WorkerInfo{worker("a", 1, 4)}},
			},
			scheduled: 7, completed: 7,
		},
		"a worker that leaves": {
			polls: []poll{{0, 0, []durable.WorkerInfo{worker("a", -9, 100)}}, {1, 0, []durable.WorkerInfo{worker("a", -9, 110)}}, {2, 0, nil}}, completed: 5,
		},
		"only the last ten seconds count": {
			polls: []poll{{0, 0, nil}, {1, 1000, nil}, {6, 1005, nil}, {11, 1010, nil}}, scheduled: 1,
		},
		"polls at long intervals": {polls: []poll{{0, 0, nil}, {20, 100, nil}, {40, 300, nil}}, scheduled: 10},
	} {
		t.Run(name, func(t *testing.T) {
			var tally tally
			for i, p := range x.polls {
				at := begun.Add(time.Duration(p.at) * time.Second)
				tally.add(at, durable.Stats{Now: at, Scheduled: p.scheduled}, p.workers)
				require.Equal(t, i == 0, tally.rates() == nil)
				require.Equal(t, i == 0, tally.lateness() == nil)
			}
			rates, late := tally.rates(), tally.lateness()
			require.Equal(t, x.scheduled, rates.Scheduled)
			require.Equal(t, x.completed, rates.Completed)
			require.InDelta(t, x.completed*late.Over, float64(late.Runs), 1e-9)
			if late.Runs > 0 {
				require.InDelta(t, 0.001, late.P99, 0.001)
			}
		})
	}
}

// The rates restart after a time without replies, and do not include it.
func TestTallyAfterAGap(t *testing.T) {
	var tally tally
	at := time.Unix(1e9, 0)
	add := func(second int, scheduled uint64) {
		tally.add(at.Add(time.Duration(second)*time.Second), durable.Stats{Scheduled: scheduled}, nil)
	}
	add(0, 0)
	add(1, 10)
	tally.gap()
	require.Nil(t, tally.rates())
	add(60, 6000)
	require.Nil(t, tally.rates())
	add(61, 6003)
	require.Equal(t, 3.0, tally.rates().Scheduled)
}

// Live workers come first, by name; then those without a heartbeat, the latest death first.
func TestWorkerList(t *testing.T) {
	var tally tally
	now := time.Unix(1e9, 0)
	workers := []durable.WorkerInfo{
		{Name: "a", Heartbeat: now.Add(-time.Hour), Slots: 9, Running: 9}, {Name: "b", Live: true, Heartbeat: now, Slots: 10, Running: 3},
		{Name: "c", Heartbeat: now.Add(-time.Minute)}, {Name: "d", Live: true, Heartbeat: now.Add(-time.Second), Slots: 10, Running: 4},
	}
	list := tally.workerList(workers)
	require.Equal(t, []int{2, 2, 20, 7}, []int{list.Live, list.Dead, list.Slots, list.Running})
	var names []string
	for _, w := range list.Items {
		names = append(names, w.Name)
	}
	require.Equal(t, []string{"b", "d", "c", "a"}, names)
	list = tally.workerList(make([]durable.WorkerInfo, 1000))
	require.Len(t, list.Items, maxWorkers)
	require.Equal(t, 1000, list.Dead)
}
