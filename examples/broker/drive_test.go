package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shortLoad is the drive in two seconds, with all that belongs to it but faults.
func shortLoad() load {
	l := defaultLoad()
	l.duration, l.rate, l.polls, l.waits = 2*time.Second, 5_000, 1_000, 2*time.Second
	l.hangUps, l.trickle = 100*time.Millisecond, 10*time.Millisecond
	l.faults = false
	return l
}

// The drive checks itself; this test adds that it had something to check. It
// counts the goroutines of the process, so no other test may run meanwhile: it
// is not parallel.
func TestDrive(t *testing.T) {
	l := shortLoad()
	for {
		sum, err := runLoad(t.Context(), testConfig(), l, io.Discard)
		require.NoError(t, err)
		require.True(t, sum.ok(), "%+v", sum)
		if min(sum.Records, sum.Fetches.Completed, sum.Fetches.Expired, sum.Fetches.Cancelled, sum.closed) > 0 {
			require.Positive(t, sum.WakeMicros.P50)
			return
		}
		// On a slow machine two seconds may be too short for all of it.
		l.duration *= 2
		require.Less(t, l.duration, time.Minute, "%+v", sum)
	}
}

// The polls begin when every broker knows of their topic, also one that learns late.
func TestTopicsAreKnownEverywhere(t *testing.T) {
	c := startBrokers(t, 3)
	for _, n := range c.nodes[1:] {
		n.gate.slow(100 * time.Millisecond)
	}
	d := &drive{cluster: c, ledger: newLedger(map[string]int{quietTopic: 8})}
	require.NoError(t, d.createTopics(t.Context()))
	for _, s := range c.running() {
		require.Contains(t, s.image().byName, quietTopic, "broker %d", s.id)
	}
	for _, n := range c.nodes {
		n.gate.slow(0)
	}
}

// The whole tour, in the README's order and in some other one, on a cluster that
// notices faults sooner than the example's.
func TestTour(t *testing.T) {
	for _, seed := range []uint64{0, rand.Uint64()} {
		cfg, l := testConfig(), defaultLoad()
		cfg.replicaLag, cfg.brokerSession = 400*time.Millisecond, time.Second
		l.duration, l.rate, l.polls, l.waits, l.seed = time.Second, 2_000, 500, 2*time.Second, seed
		var live bytes.Buffer
		sum, err := runLoad(t.Context(), cfg, l, &live)
		require.NoError(t, err)
		for heldUp(sum, cfg) {
			t.Logf("goroutines waited up to %v for a processor: again, with twice the session of %v", sum.stalled, cfg.brokerSession)
			cfg.replicaLag, cfg.brokerSession = 2*cfg.replicaLag, 2*cfg.brokerSession
			live.Reset()
			sum, err = runLoad(t.Context(), cfg, l, &live)
			require.NoError(t, err)
		}
		require.True(t, sum.ok(), "seed %d: %+v\n%s", seed, sum, &live)
		require.Equal(t, len(stops), sum.stops, "seed %d", seed)
		for kind, o := range sum.Operations {
			require.Positive(t, o.Completed, "seed %d: %s", seed, kind)
		}
		require.Positive(t, sum.moved, "polls that were sent on to another leader")
	}
}

// heldUp reports whether all that is wrong with a tour is that a stop did not come to
// its end, and brokers were silent for a good part of their session for want of a
// processor: they lose it without a fault then.
func heldUp(s *summary, cfg config) bool {
	rest := *s
	rest.problems = slices.DeleteFunc(slices.Clone(s.problems), func(p string) bool { return strings.HasPrefix(p, "tour: ") })
	return !s.ok() && rest.ok() && s.stalled > cfg.brokerSession/4
}

func TestStalls(t *testing.T) {
	s := &stalls{}
	s.note(100*time.Millisecond, 119*time.Millisecond) // too short to count
	s.note(200*time.Millisecond, 230*time.Millisecond)
	s.note(300*time.Millisecond, 400*time.Millisecond)
	for _, w := range []struct{ from, to, want time.Duration }{
		{0, 199, 0}, {0, 200, 30}, {0, 1000, 100}, {230, 299, 30}, {231, 299, 0}, {231, 300, 100}, {400, 500, 100}, {401, 500, 0},
	} {
		ms := time.Millisecond
		require.Equal(t, w.want*ms, s.worst(w.from*ms, w.to*ms), "%v", w)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		s := &stalls{start: time.Now()}
		s.measure(ctx) // virtual time never stalls
		require.Zero(t, s.worst(0, time.Hour))
	})
}

// With -json, stdout has one line and no more: scripts read it.
func TestDriveJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run([]string{"-json", "-duration", "2s", "-polls", "100", "-rate", "1000", "-faults=false"}, &stdout, &stderr)
	require.Zero(t, status, stderr.String())
	require.Equal(t, 1, strings.Count(stdout.String(), "\n"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &got))
	require.Len(t, got, 8)
	for _, key := range []string{"records", "lost", "duplicated", "out_of_order", "fetches", "wake_us", "goroutines_leaked", "operations"} {
		require.Contains(t, got, key)
	}
	require.Len(t, got["fetches"], 5)
	for _, kind := range []string{"produce", "fetch", "join", "sync", "heartbeat", "delete_records"} {
		require.Contains(t, got["operations"], kind)
		require.Len(t, got["operations"].(map[string]any)[kind], 6)
	}
	require.Contains(t, stderr.String(), "each seen once and in order")
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"argument"}, {"-partitions", "0"}, {"-duration", "0s"}, {"-polls", "-1"},
	} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
	for _, args := range [][]string{{"-serve", "-addr", "0.0.0.0:0"}, {"-addr", "0.0.0.0:0"}, {"-max-batch", "0"}, {"-brokers", "0"}, {"-brokers", "17"}} {
		require.Equal(t, 1, run(args, io.Discard, io.Discard), args)
	}
}

// TestServe runs -serve as a process of its own, parks a fetch and ends it.
func TestServe(t *testing.T) {
	if os.Getenv("BROKER_TEST_SERVE") == "1" {
		os.Exit(run([]string{"-serve", "-brokers", "1"}, os.Stdout, os.Stderr))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), "BROKER_TEST_SERVE=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 256)
	n, err := out.Read(line)
	require.NoError(t, err)
	addr, found := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "broker: listening on ")
	require.True(t, found, string(line[:n]))

	c := dialAddr(t, addr)
	fetch := fetchRequest(12, &topic{name: "t"}, forEver, 1, plenty, want{0, 0, plenty})
	c.call(metadataRequest("t"))
	// Handled in order on one connection: when the topic of the second request
	// exists, the fetch before it is parked.
	c.send(fetch, metadataRequest("after"))
	other := dialAddr(t, addr)
	require.Eventually(t, func() bool {
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 9
		return len(other.call(all).(*kmsg.MetadataResponse).Topics) == 2
	}, patience, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Empty(t, partitionsOf(c.receive(fetch))[0].RecordBatches)
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "exit status 0")
	require.Contains(t, string(rest), "1 fetches were parked")
}

func metadataRequest(name string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 9, true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	return req
}
