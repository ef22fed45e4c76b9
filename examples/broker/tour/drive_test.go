package tour

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
	"github.com/seed-782fa212/limbo/examples/internal/network"
)

func testConfig() cluster.Config {
	return cluster.Config{Config: broker.Config{Logger: slog.New(slog.DiscardHandler)}}
}

// The drive checks itself; this test requires that there was something to check, on this machine's
// network. It counts the goroutines of the process, so no other test may run at the same time: it
// is not parallel.
func TestDrive(t *testing.T) {
	l := DefaultLoad()
	l.Duration, l.Rate, l.Polls, l.Waits, l.Faults = 500*time.Millisecond, 5_000, 1_000, 400*time.Millisecond, false
	l.HangUps, l.Trickle = 50*time.Millisecond, 5*time.Millisecond
	for {
		sum, err := runLoad(t.Context(), testConfig(), l, nil, io.Discard)
		require.NoError(t, err)
		require.True(t, sum.Checks().OK(), "%+v", sum)
		if min(sum.Records, sum.Fetches.Completed, sum.Fetches.Expired, sum.Fetches.Cancelled, sum.closed) > 0 {
			require.Positive(t, sum.WakeMicros.P50)
			return
		}
		// On a slow machine half a second may be too short for all of that.
		l.Duration *= 2
		require.Less(t, l.Duration, time.Minute, "%+v", sum)
	}
}

// The polls begin when every broker knows their topic, even one that learns late.
func TestTopicsAreKnownEverywhere(t *testing.T) {
	c, err := cluster.New(testConfig())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Shutdown(context.Background())) }()
	require.NoError(t, c.Slow(1, 20*time.Millisecond))
	require.NoError(t, c.Slow(2, 20*time.Millisecond))
	d := &drive{network: network.Machine, cluster: c, ledger: newLedger(map[string]int{quietTopic: 8})}
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

// A tour of three scenarios that do not need a broker to be fenced: on a machine that stalls, this
// could cause other faults. TestTour and the program run the whole tour.
func TestShortTour(t *testing.T) {
	cfg, l := testConfig(), DefaultLoad()
	cfg.ReplicaLag, cfg.Meta.BrokerSession = 300*time.Millisecond, time.Hour
	cfg.Groups.InitialRebalanceDelay = 100 * time.Millisecond
	l.Duration, l.Rate, l.Polls, l.Waits, l.Calm = time.Second, 2_000, 500, time.Second, 100*time.Millisecond
	l.scenarios = []scenario{
		{"a follower pauses", 2, (*tour).pauseFollower},
		{"records are deleted", 1, (*tour).deleteRecords},
		{"a broker is stopped in order, and started", 2, (*tour).restart},
	}
	var live bytes.Buffer
	sum, err := runLoad(t.Context(), cfg, l, nil, &live)
	require.NoError(t, err)
	require.True(t, sum.Checks().OK(), "%+v\n%s", sum, &live)
	require.Equal(t, len(l.scenarios), sum.scenarios)
}

func TestStalls(t *testing.T) {
	s := &stalls{}
	s.record(100*time.Millisecond, 119*time.Millisecond) // too short to count
	s.record(200*time.Millisecond, 230*time.Millisecond)
	s.record(300*time.Millisecond, 400*time.Millisecond)
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
