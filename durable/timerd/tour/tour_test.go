package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// The tour starts its own binary for its processes, which here is the test binary.
func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(runChild())
	}
	if err := need.Parallel(8); err != nil { // the tours wait for the times in their plans
		panic(err)
	}
	os.Exit(m.Run())
}

// short runs a short tour with all parts of the long one, which the command runs.
func short(t *testing.T, store string) {
	timers, span := 1500, 2500*time.Millisecond
	if os.Getenv("LIMBO_LONG") != "" {
		timers, span = defaultTimers, defaultSpan
	}
	var stdout, stderr bytes.Buffer
	status := runTour(t.Context(), options{Store: store, JSON: true, Seed: 7, Timers: timers, Span: span, Stdout: &stdout, Stderr: &stderr})
	t.Log(stderr.String(), stdout.String())
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var s Summary
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &s))
	require.Zero(t, status)
	require.True(t, s.ok())
	require.Equal(t, timers, s.Timers)
	require.Positive(t, s.Ran)
	require.Positive(t, s.Cancelled)
	require.Positive(t, s.Dead)
	require.Positive(t, s.Schedules.Replaced)
	require.Positive(t, s.Schedules.Deleted)
	require.Positive(t, s.Schedules.Created)
	if timers == defaultTimers { // a short tour may have no timers
		require.Positive(t, s.Schedules.Skipped)
	}
	require.Positive(t, s.Schedules.Done)
	require.Positive(t, s.WorkersKilled)
	require.Positive(t, s.EngineKilled)
	if store != onPebble {
		require.Positive(t, s.Cut)
		require.Positive(t, s.CameLate)
		require.Positive(t, s.CameTwice)
	}
}

func TestTourOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	short(t, onPebble)
}

func TestTourOnRedis(t *testing.T) {
	need.Program(t, "redis-server", "redis-server", "valkey-server")
	t.Parallel()
	short(t, onRedis)
}

func TestTourOnACluster(t *testing.T) {
	need.Program(t, "redis-server", "redis-server", "valkey-server")
	t.Parallel()
	short(t, onCluster)
}

// A seed always gives the same plan, and the plan covers all cases.
func TestPlan(t *testing.T) {
	l := load{Timers: 20_000, Span: 20 * time.Second, Schedulers: 2, Seed: 3}
	timers, modes, kinds, dues := map[int]bool{}, map[mode]int{}, map[opKind]int{}, map[time.Duration]int{}
	for i := range l.Schedulers {
		ops := l.planTimers(i)
		require.Equal(t, ops, l.planTimers(i))
		last := map[int]time.Duration{}
		for _, o := range ops {
			require.LessOrEqual(t, last[o.key], o.at)
			last[o.key] = o.at
			kinds[o.kind]++
			if o.kind == opSchedule {
				require.False(t, timers[o.timer])
				timers[o.timer] = true
				modes[o.mode]++
				dues[o.due]++
			}
		}
	}
	require.Len(t, timers, l.Timers)
	for _, m := range []mode{modeOK, modeSlow, modeFlaky, modeHang, modeFatal, modePoison, modeUpgrade, modeTrickle, modeInform, modeEndless} {
		require.Positive(t, modes[m], m)
	}
	require.Positive(t, kinds[opCancel])
	require.Positive(t, kinds[opMove])
	bursts := 0
	for _, n := range dues {
		if n > 200 {
			bursts++
		}
	}
	require.Positive(t, bursts)
}
