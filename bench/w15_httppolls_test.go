package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All holders of polls, in real children and into a report.
func TestHTTPPollsWorkload(t *testing.T) {
	t.Parallel()
	requireReady(t, nodesRival.unavailable)
	results, _ := quickRun(t, "W15", []string{"w15_memory.png", "w15_wake.png"})
	for _, r := range results {
		requireWakeUps(t, r)
		if r.Impl == nodesRival.name {
			require.Len(t, r.Metrics, 2, "nodes and clients are one process")
			continue
		}
		// A goroutine's stack is at least 2 KiB, and each poll has at least one goroutine.
		require.Greater(t, r.Metrics["bytes_per_poll"], 2048., r.Impl)
	}
	require.Equal(t, []string{"longpoll", "longpoll-h2", "longpoll-nodes", "net/http", "net/http-h2"}, implsIn(results))
}

// newTestPolls parks polls at a server, which is this binary again.
func newTestPolls(t *testing.T, holder string, n, protocol int) *pollClients {
	t.Helper()
	cs := newPollClients(startTestServer(t, "polls", fmt.Sprint(holder, " ", n)).addr, n, protocol)
	t.Cleanup(cs.close)
	return cs
}

// A woken poll returns the published event, and no other poll is woken by it. wake checks that
// each time.
func TestHTTPPollsAreWokenOneAtATime(t *testing.T) {
	for holder := range pollHolders {
		for protocol := 1; protocol <= 2; protocol++ {
			t.Run(fmt.Sprintf("holder=%s/protocol=%d", holder, protocol), func(t *testing.T) {
				cs := newTestPolls(t, holder, 10, protocol)
				require.NoError(t, cs.park(10))
				parked, err := cs.statistic("parked")
				require.NoError(t, err)
				require.EqualValues(t, 10, parked)
				wakeAll(t, cs.wake)
				require.Empty(t, cs.received)
			})
		}
	}
}

// A wrong event is an error, not a result.
func TestPollClientsNoticeAWrongAnswer(t *testing.T) {
	cs := newTestPolls(t, "longpoll", 3, 1)
	require.NoError(t, cs.park(3))
	cs.received <- response{poll: 0, at: time.Now(), body: []byte("1")}
	_, err := cs.wake(0)
	require.ErrorContains(t, err, `event "1"`)
	require.Eventually(t, func() bool { return len(cs.received) == 1 }, responseTimeout, time.Millisecond)
	_, err = cs.wake(1) // reads the response of 0
	require.EqualError(t, err, "poll 0 is answered, and poll 1 was woken")
	_, err = cs.wake(3)
	require.ErrorContains(t, err, "404")
	_, err = cs.statistic("nothing")
	require.ErrorContains(t, err, "404")
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	return req
}

func TestPollClientsNoticeAnEarlyAnswer(t *testing.T) {
	cs := newTestPolls(t, "net/http", 2, 1)
	_, err := cs.do(cs.control, request(t, http.MethodPost, cs.url+"/events/1"), 1)
	require.NoError(t, err)
	require.ErrorContains(t, cs.park(2), "before there was an event")
}

func TestPollClientsNoticeTheWrongProtocol(t *testing.T) {
	cs := newTestPolls(t, "net/http", 1, 2)
	_, err := cs.do(cs.polls, request(t, http.MethodGet, cs.url+"/parked"), 1)
	require.ErrorContains(t, err, "HTTP/2.0")
}

func TestPollServersThatThereAreNot(t *testing.T) {
	require.ErrorContains(t, servePolls(t.Context(), "nobody 5"), "no holder")
	require.ErrorContains(t, servePolls(t.Context(), "longpoll"), "polls")
}

// If fewer files may be open than polls are requested, fewer are parked, and the requested size
// is a gap.
func TestASizeBeyondTheMachineIsAGapAndASmallerOneIsDone(t *testing.T) {
	few := longpollRival
	few.maxSize, few.maxReason = 300, "428 files may be open"
	r := runner{workloads: []workload{httpPollsWorkload}, rivals: []rival{few}, reps: 2}
	var planned []Params
	for _, group := range r.plan() {
		for _, s := range group {
			planned = append(planned, s.job.Params)
		}
	}
	require.Equal(t, []Params{{"parked": 300}, {"parked": 300}}, planned)
	require.Equal(t, []Gap{{"W15", "longpoll", parked10k, "428 files may be open"}}, r.gaps)
}

// net/http's share of a poll is shown separately, and has no bound.
func TestTargetsOfHTTPPolls(t *testing.T) {
	row := func(impl string, m Metrics) Row {
		return newRow([]Result{{Workload: "W15", Impl: impl, Params: parked10k, Metrics: m}})
	}
	require.Equal(t, [][]string{
		{"W15", "HTTP/1.1: KB a poll, net/http's included", "12", "22.5", "no"},
		{"W15", "HTTP/1.1: KB a poll, less net/http's alone", gapMark, "2", gapMark},
		{"W15", "HTTP/2: KB a poll, net/http's included", "12", "11", "yes"},
		{"W15", "idle_cpu_pct, either", "1", "2", "no"},
		{"W15", "across nodes: wake_p99, ms", "5", "4", "yes"},
	}, targetTable([]Row{
		row("longpoll", Metrics{"bytes_per_poll": 22_500, "idle_cpu_pct": .1}),
		row("longpoll-h2", Metrics{"bytes_per_poll": 11_000, "idle_cpu_pct": 2}),
		row("longpoll-nodes", Metrics{"wake_p99_us": 4000}),
		row("net/http", Metrics{"bytes_per_poll": 20_500}),
	}).rows)
}
