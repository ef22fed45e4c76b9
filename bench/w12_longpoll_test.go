package main

import (
	"math"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Both brokers, in real children and into a report.
func TestLongPollWorkload(t *testing.T) {
	t.Parallel()
	results, _ := quickRun(t, "W12", []string{"w12_wake.png"})
	for _, r := range results {
		requireWakeUps(t, r)
	}
	require.Equal(t, []string{"limbo-broker", "kfake"}, implsIn(results))
}

// requireWakeUps checks a result of W12 or W15.
func requireWakeUps(t *testing.T, r Result) {
	t.Helper()
	require.Equal(t, Params{"parked": 20}, r.Params)
	require.Positive(t, r.Metrics["wake_p50_us"], r.Impl)
	require.GreaterOrEqual(t, r.Metrics["wake_p99_us"], r.Metrics["wake_p50_us"], r.Impl)
	if runtime.GOOS == "linux" && r.Impl != nodesRival.name {
		require.Contains(t, r.Metrics, "idle_cpu_pct", r.Impl)
	}
}

// startTestKfake is a server for tests: this binary again.
func startTestKfake(t *testing.T) *server {
	t.Helper()
	return startTestServer(t, "kfake", "")
}

// startTestServer is startOwnServer for tests.
func startTestServer(t *testing.T, name, arg string) *server {
	t.Helper()
	s, err := startOwnServer(name, arg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.stop()) })
	return s
}

// wakeAll wakes ten polls, ten times each.
func wakeAll(t *testing.T, wake func(i int) (time.Duration, error)) {
	t.Helper()
	for i := range 100 {
		took, err := wake(i * 7 % 10)
		require.NoError(t, err)
		require.Positive(t, took)
	}
}

// The control wakes the requested poll, and no other.
func TestRelay(t *testing.T) {
	ps, err := parkAtRelay(startTestServer(t, "relay", "10").addr, 10)
	require.NoError(t, err)
	defer ps.close()
	wakeAll(t, ps.wake)
	_, err = ps.producer.Write(newRelayFrame(relayWake, 3))
	require.NoError(t, err)
	for len(ps.received) == 0 {
		runtime.Gosched()
	}
	_, err = ps.wake(4)
	require.EqualError(t, err, "poll 3 is answered, and poll 4 was woken")
}

// A woken fetch returns the produced record, and no other fetch is woken by it. wake checks that
// each time.
func TestPollsAreWokenOneAtATime(t *testing.T) {
	s := startTestKfake(t)
	ps, err := park(s.addr, 10)
	require.NoError(t, err)
	defer ps.close()
	wakeAll(t, ps.wake)
	for _, p := range ps.all {
		require.Equal(t, int64(10), p.offset)
	}
}

// A wrong record is an error, not a result.
func TestPollsNoticeAWrongRecord(t *testing.T) {
	ps, err := park(startTestKfake(t).addr, 2)
	require.NoError(t, err)
	defer ps.close()
	ps.all[0].offset = 5 // as if five records had been lost
	_, err = ps.wake(0)
	require.ErrorContains(t, err, "where one at 5 was to come")
}

func TestPollsNoticeAWrongWakeUp(t *testing.T) {
	ps, err := park(startTestKfake(t).addr, 2)
	require.NoError(t, err)
	defer ps.close()
	stray := produceRequest(pollTopic, 1)
	require.NoError(t, ps.producer.write(ps.producer.frame(stray)))
	_, err = ps.producer.receive(stray)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(ps.received) == 1 }, 20*time.Second, time.Millisecond)
	_, err = ps.wake(0)
	require.EqualError(t, err, "poll 1 is answered, and poll 0 was woken")
}

func TestAServerThatStopsIsAnError(t *testing.T) {
	s := startTestKfake(t)
	ps, err := park(s.addr, 2)
	require.NoError(t, err)
	defer ps.close()
	require.NoError(t, s.stop())
	_, err = ps.wake(0)
	require.Error(t, err)
	_, err = park(s.addr, 2)
	require.Error(t, err)
}

func TestAServerThatDoesNotStart(t *testing.T) {
	_, err := startServer(exec.Command("/nonexistent/broker"))
	require.ErrorContains(t, err, "/nonexistent/broker")
	_, err = startServer(exec.Command("sh", "-c", "echo no such flag >&2; exit 2"))
	require.ErrorContains(t, err, "exit status 2")
	require.ErrorContains(t, err, "no such flag")
}

func TestAServerSaysWhereItListens(t *testing.T) {
	s, err := startServer(exec.Command("sh", "-c", `echo broker: starting
		printf 'broker: list'; sleep .05; echo 'ening on 127.0.0.1:1234'
		echo 'broker: listening on 1.2.3.4:5'; exec sleep 600`))
	require.NoError(t, err)
	defer s.Kill()
	require.Equal(t, "127.0.0.1:1234", s.addr)
	_, err = startServer(exec.Command("sh", "-c", "echo broker: starting"))
	require.ErrorContains(t, err, "ended before it was ready")
}

func TestOpenFilesAreCheckedFirst(t *testing.T) {
	require.NoError(t, allowOpenFiles(100))
	require.ErrorContains(t, allowOpenFiles(math.MaxInt32), "open files")
}
