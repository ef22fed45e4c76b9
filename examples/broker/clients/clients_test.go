package clients

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// patience bounds every wait of these tests.
const patience = time.Minute

// start runs a cluster of three with a topic t of so many partitions.
func start(t *testing.T, partitions int32) (c *cluster.Cluster, addrs string) {
	t.Helper()
	cfg := cluster.Config{}
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg.Groups.InitialRebalanceDelay = 100 * time.Millisecond
	cfg.ReplicaLag, cfg.Meta.BrokerSession = time.Second, 2*time.Second // as the tour has them
	c, err := cluster.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, c.Shutdown(ctx))
		st := c.Stats()
		require.Zero(t, st.Panics)
		require.Zero(t, st.LostCommitted)
		require.Zero(t, st.Parked)
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 3, nil, "t")
	require.NoError(t, err)
	return c, strings.Join(c.Addrs(), ",")
}

// each runs a test with each client, a cluster for each. They mostly wait, so they run at
// once.
func each(t *testing.T, test func(t *testing.T, p program)) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			if p.script != "" {
				p.python(t) // or the test is skipped
			}
			t.Parallel()
			test(t, p)
		})
	}
}

func TestAdmin(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		_, addrs := start(t, 1)
		steps := []string{"create", "list", "settings", "grow", "alter", "delete"}
		steps = slices.DeleteFunc(steps, func(step string) bool { return slices.Contains(p.cannot, step) })
		require.Equal(t, steps, p.run(t, "admin", addrs, "other").end(t))
	})
}

// Each compression, written by a client, is read by the same one, in order.
func TestRecords(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		_, addrs := start(t, 1)
		var want []string
		for _, codec := range p.codecs {
			r := p.run(t, "produce", addrs, "t", codec)
			var values []string
			for i := range 100 {
				values = append(values, fmt.Sprintf("%s %d %s", codec, i, strings.Repeat("x", 200)))
			}
			_, err := io.WriteString(r.in, strings.Join(values, "\n")+"\n")
			require.NoError(t, err)
			require.Equal(t, values, r.end(t), "acknowledged")
			want = append(want, values...)
		}
		require.Equal(t, want, p.run(t, "consume", addrs, "t", fmt.Sprint(len(want))).end(t))
	})
}

// group has a producer write while what its two members print is gathered.
type group struct {
	producer, first, second *running
	written                 int
}

func (g *group) write(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(g.producer.in, g.written)
	require.NoError(t, err)
	g.written++
}

// lacking counts acknowledged values that no member has printed.
func (g *group) lacking() int {
	seen := map[string]bool{}
	for _, m := range []*running{g.first, g.second} {
		for _, v := range m.said() {
			seen[v] = true
		}
	}
	n := 0
	for _, v := range g.producer.said() {
		if !seen[v] {
			n++
		}
	}
	return n
}

// until writes a value at a time until cond holds.
func (g *group) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	pace, late := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer pace.Stop()
	for !cond() {
		g.write(t)
		select {
		case <-pace.C:
		case <-late:
			require.Fail(t, "not in time", what)
		}
	}
}

// A member is killed: the other is given its partitions, and sees all that it had not
// committed.
func TestGroup(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		_, addrs := start(t, 6)
		g := group{producer: p.run(t, "produce", addrs, "t", "none"), first: p.run(t, "member", addrs, "t", "g")}
		g.second = g.first
		g.until(t, "the first has all partitions", func() bool { return len(g.first.said()) > 0 })
		g.second = p.run(t, "member", addrs, "t", "g")
		g.until(t, "the second has some", func() bool { return len(g.second.said()) > 0 })
		g.first.kill(t)
		for range 100 {
			g.write(t)
		}
		require.Len(t, g.producer.end(t), g.written)
		require.Eventually(t, func() bool { return g.lacking() == 0 }, patience, 10*time.Millisecond)
		g.second.end(t)
	})
}

// faultsLast is how long TestFaults has brokers fail: a kill and a pause, or with
// LIMBO_LONG=1 ten of them.
func faultsLast() time.Duration {
	if os.Getenv("LIMBO_LONG") == "1" {
		return time.Minute
	}
	return 9 * time.Second
}

// Brokers fail: nothing that was acknowledged is lost, and nothing is there twice if the
// producer is idempotent.
func TestFaults(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		c, addrs := start(t, 6)
		g := group{
			producer: p.run(t, "produce", addrs, "t", "none"),
			first:    p.run(t, "member", addrs, "t", "g"), second: p.run(t, "member", addrs, "t", "g"),
		}
		done := make(chan struct{})
		var faulty sync.WaitGroup
		faulty.Go(func() { faults(t, c, done) })
		g.writeFor(t, faultsLast())
		close(done)
		faulty.Wait()
		acked := g.producer.end(t)
		require.Len(t, acked, g.written)
		require.Eventually(t, func() bool { return g.lacking() == 0 }, patience, 10*time.Millisecond)
		g.first.end(t)
		g.second.end(t)
		count := logged(t, c)
		var lost, twice []string
		for _, v := range acked {
			switch n := count[v]; {
			case n == 0:
				lost = append(lost, v)
			case n > 1 && p.idempotent:
				twice = append(twice, v)
			}
		}
		require.Empty(t, lost)
		require.Empty(t, twice)
		t.Logf("%d acknowledged, %d in the log", len(acked), len(count))
	})
}

// writeFor writes a value each millisecond.
func (g *group) writeFor(t *testing.T, d time.Duration) {
	t.Helper()
	pace, enough := time.NewTicker(time.Millisecond), time.After(d)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
			g.write(t)
		case <-enough:
			return
		}
	}
}

// faults kills and pauses brokers in turn until done is closed.
func faults(t *testing.T, c *cluster.Cluster, done <-chan struct{}) {
	wait := func(d time.Duration) {
		select {
		case <-done:
		case <-time.After(d):
		}
	}
	for i := int32(0); ; i++ {
		select {
		case <-done:
			return
		default:
		}
		id := i % 3
		begin, end := c.Kill, c.Start
		if i%2 == 1 {
			begin, end = c.Pause, c.Resume
		}
		assert.NoError(t, begin(id))
		wait(3 * time.Second)
		assert.NoError(t, end(id))
		wait(3 * time.Second)
	}
}

// logged is how often each value is in the log of t.
func logged(t *testing.T, c *cluster.Cluster) map[string]int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ConsumeTopics("t"))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "t")
	require.NoError(t, err)
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	count := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for total > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { count[string(r.Value)]++; total-- })
	}
	return count
}
