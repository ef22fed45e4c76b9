package tour

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
)

// shortLoad is the drive in two seconds, with all that belongs to it but faults.
func testConfig() cluster.Config {
	return cluster.Config{Config: broker.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}}
}

func shortLoad() Load {
	l := DefaultLoad()
	l.Duration, l.Rate, l.Polls, l.Waits = 2*time.Second, 5_000, 1_000, 2*time.Second
	l.HangUps, l.Trickle = 100*time.Millisecond, 10*time.Millisecond
	l.Faults = false
	return l
}

// The drive checks itself; this test adds that it had something to check. It
// counts the goroutines of the process, so no other test may run meanwhile: it
// is not parallel.
func TestDrive(t *testing.T) {
	l := shortLoad()
	for {
		sum, err := runLoad(t.Context(), testConfig(), l, nil, io.Discard)
		require.NoError(t, err)
		require.True(t, sum.Checks().OK(), "%+v", sum)
		if min(sum.Records, sum.Fetches.Completed, sum.Fetches.Expired, sum.Fetches.Cancelled, sum.closed) > 0 {
			require.Positive(t, sum.WakeMicros.P50)
			return
		}
		// On a slow machine two seconds may be too short for all of it.
		l.Duration *= 2
		require.Less(t, l.Duration, time.Minute, "%+v", sum)
	}
}

// The polls begin when every broker knows of their topic, also one that learns late.
func TestTopicsAreKnownEverywhere(t *testing.T) {
	c, err := cluster.New(testConfig())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Shutdown(context.Background())) }()
	require.NoError(t, c.Slow(1, 100*time.Millisecond))
	require.NoError(t, c.Slow(2, 100*time.Millisecond))
	d := &drive{cluster: c, ledger: newLedger(map[string]int{quietTopic: 8})}
	require.NoError(t, d.createTopics(t.Context()))
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(quietTopic)
	req.Topics = append(req.Topics, rt)
	cl, err := d.client()
	require.NoError(t, err)
	defer cl.Close()
	for id := range c.Brokers() {
		resp, err := req.RequestWith(t.Context(), cl.Broker(int(id)))
		require.NoError(t, err)
		require.Zero(t, resp.Topics[0].ErrorCode, "broker %d", id)
		require.NoError(t, c.Slow(id, 0))
	}
}

// The whole tour, in the README's order and in some other one, on a cluster that
// notices faults sooner than the example's.
func TestTour(t *testing.T) {
	for _, seed := range []uint64{0, rand.Uint64()} {
		cfg, l := testConfig(), DefaultLoad()
		cfg.ReplicaLag, cfg.Meta.BrokerSession = 400*time.Millisecond, time.Second
		l.Duration, l.Rate, l.Polls, l.Waits, l.Seed = time.Second, 2_000, 500, 2*time.Second, seed
		var live bytes.Buffer
		sum, err := runLoad(t.Context(), cfg, l, nil, &live)
		require.NoError(t, err)
		for heldUp(sum, cfg) {
			t.Logf("goroutines waited up to %v for a processor: again, with twice the session of %v", sum.stalled, cfg.Meta.BrokerSession)
			cfg.ReplicaLag, cfg.Meta.BrokerSession = 2*cfg.ReplicaLag, 2*cfg.Meta.BrokerSession
			live.Reset()
			sum, err = runLoad(t.Context(), cfg, l, nil, &live)
			require.NoError(t, err)
		}
		require.True(t, sum.Checks().OK(), "seed %d: %+v\n%s", seed, sum, &live)
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
func heldUp(s *summary, cfg cluster.Config) bool {
	rest := *s
	rest.problems = slices.DeleteFunc(slices.Clone(s.problems), func(p string) bool { return strings.HasPrefix(p, "tour: ") })
	return !s.Checks().OK() && rest.Checks().OK() && s.stalled > cfg.Meta.BrokerSession/4
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
