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

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// waitLimit bounds every wait of these tests.
const waitLimit = time.Minute

func newCluster(change ...func(*cluster.Config)) (*cluster.Cluster, error) {
	cfg := cluster.Config{}
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Groups.InitialRebalanceDelay = 100 * time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	return cluster.New(cfg)
}

// quickFaultDetection makes the cluster notice faults within a second. On a machine that stalls,
// this causes further faults, which the programs must also survive.
func quickFaultDetection(cfg *cluster.Config) {
	cfg.ReplicaLag, cfg.Meta.BrokerSession = 500*time.Millisecond, time.Second
}

// end shuts down a cluster and returns an error if that fails or if the cluster's state is wrong.
func end(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil {
		return err
	}
	if st := c.Stats(); st.Panics > 0 || st.LostCommitted > 0 || st.Parked > 0 {
		return fmt.Errorf("%d panics, %d committed records lost, %d requests left", st.Panics, st.LostCommitted, st.Parked)
	}
	return nil
}

// shared is the cluster of all tests except TestFaults. Its first user starts it; TestMain ends it.
var (
	shared      = sync.OnceValues(func() (*cluster.Cluster, error) { sharedBegun = true; return newCluster() })
	sharedBegun bool
)

func endShared() error {
	if !sharedBegun {
		return nil
	}
	c, err := shared()
	if err != nil {
		return nil // the test that started it has reported the error
	}
	return end(c)
}

// createTopic creates a topic with this number of partitions and returns the brokers' addresses.
func createTopic(t *testing.T, c *cluster.Cluster, name string, partitions int32) (addrs string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 3, nil, name)
	require.NoError(t, err)
	return strings.Join(c.Addrs(), ",")
}

// each runs a test with each client on one cluster, in parallel, because the tests mostly wait.
func each(t *testing.T, test func(t *testing.T, p program, c *cluster.Cluster)) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.need(t)
			c, err := shared()
			require.NoError(t, err)
			test(t, p, c)
		})
	}
}

func TestAdmin(t *testing.T) {
	each(t, func(t *testing.T, p program, c *cluster.Cluster) {
		steps := []string{"create", "list", "settings", "grow", "alter", "delete"}
		steps = slices.DeleteFunc(steps, func(step string) bool { return slices.Contains(p.cannot, step) })
		require.Equal(t, steps, p.run(t, "admin", strings.Join(c.Addrs(), ","), "admin-"+p.name).end(t))
	})
}

// For each compression codec, a client reads the records that it wrote, in order.
func TestRecords(t *testing.T) {
	each(t, func(t *testing.T, p program, c *cluster.Cluster) {
		topic := "records-" + p.name
		addrs := createTopic(t, c, topic, 1)
		r := p.run(t, "produce", addrs, topic, strings.Join(p.codecs, ","))
		var values []string
		for i := range 100 * len(p.codecs) {
			values = append(values, fmt.Sprintf("%s %d %s", p.codecs[i%len(p.codecs)], i, strings.Repeat("x", 200)))
		}
		_, err := io.WriteString(r.in, strings.Join(values, "\n")+"\n")
		require.NoError(t, err)
		require.Equal(t, values, r.end(t), "acknowledged")
		require.Equal(t, values, p.run(t, "consume", addrs, topic, fmt.Sprint(len(values))).end(t))
	})
}

// group is a producer and a consumer group of two members, whose printed values are collected.
type group struct {
	program
	topic                   string
	producer, first, second *running
	written                 int
}

func (g *group) write(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(g.producer.in, g.written)
	require.NoError(t, err)
	g.written++
}

// missing counts the acknowledged values that no member has printed.
func (g *group) missing() int {
	seen := map[string]bool{}
	for _, m := range []*running{g.first, g.second} {
		for _, v := range m.output() {
			seen[v] = true
		}
	}
	n := 0
	for _, v := range g.producer.output() {
		if !seen[v] {
			n++
		}
	}
	return n
}

// until writes values, one at a time, until cond holds.
func (g *group) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	pace, late := time.NewTicker(10*time.Millisecond), time.After(waitLimit)
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

// When a member is killed, the other one gets its partitions and sees every record that the killed
// member had not committed.
func TestGroup(t *testing.T) {
	each(t, func(t *testing.T, p program, c *cluster.Cluster) {
		topic := "group-" + p.name
		addrs := createTopic(t, c, topic, 6)
		g := group{producer: p.run(t, "produce", addrs, topic, "none"), first: p.run(t, "member", addrs, topic, p.name)}
		g.second = g.first
		g.until(t, "the first has all partitions", func() bool { return len(g.first.output()) > 0 })
		g.second = p.run(t, "member", addrs, topic, p.name)
		g.until(t, "the second has some", func() bool { return len(g.second.output()) > 0 })
		g.first.kill(t)
		for range 100 {
			g.write(t)
		}
		require.Len(t, g.producer.end(t), g.written)
		require.Eventually(t, func() bool { return g.missing() == 0 }, waitLimit, 10*time.Millisecond)
		g.second.end(t)
	})
}

// rounds is how many times TestFaults kills a broker and pauses one.
func rounds() int {
	if os.Getenv("LIMBO_LONG") == "1" {
		return 10
	}
	return 1
}

// When brokers fail, no acknowledged record is lost, and none is duplicated if the producer is
// idempotent.
func TestFaults(t *testing.T) {
	t.Parallel()
	c, err := newCluster(quickFaultDetection)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end(c)) })
	var groups []*group
	for _, p := range programs {
		if _, missing := p.interpreter(); missing != "" {
			t.Run(p.name, p.need)
			continue
		}
		g := &group{program: p, topic: p.name}
		addrs := createTopic(t, c, g.topic, 6)
		g.producer, g.first, g.second = p.run(t, "produce", addrs, g.topic, "none"), p.run(t, "member", addrs, g.topic, p.name), p.run(t, "member", addrs, g.topic, p.name)
		groups = append(groups, g)
	}
	writing, stopWriting := context.WithCancel(t.Context())
	defer stopWriting()
	var writers sync.WaitGroup
	for _, g := range groups {
		writers.Go(func() { g.writeUntil(t, writing) })
	}
	goesOn(t, groups)
	for i := range int32(rounds()) {
		for n, fault := range []struct{ begin, end func(int32) error }{{c.Kill, c.Start}, {c.Pause, c.Resume}} {
			id := (i + int32(n)) % 3
			require.NoError(t, fault.begin(id))
			require.Eventually(t, func() bool {
				return !slices.ContainsFunc(c.Partitions(), func(p cluster.Partition) bool { return p.Leader == id })
			}, waitLimit, 10*time.Millisecond, "others lead")
			if n == 0 { // some clients wait longer for a paused broker's response than the test can
				goesOn(t, groups)
			}
			require.NoError(t, fault.end(id))
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			require.NoError(t, c.WaitHealthy(ctx))
			cancel()
			goesOn(t, groups)
		}
	}
	stopWriting()
	writers.Wait()
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.judge(t, c)
		})
	}
}

// goesOn waits until more values have been acknowledged to each producer.
func goesOn(t *testing.T, groups []*group) {
	t.Helper()
	for _, g := range groups {
		before := len(g.producer.output())
		require.Eventually(t, func() bool { return len(g.producer.output()) > before+10 }, waitLimit, 10*time.Millisecond, g.name)
	}
}

// writeUntil writes a value every few milliseconds until ctx ends.
func (g *group) writeUntil(t *testing.T, ctx context.Context) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
			if _, err := fmt.Fprintln(g.producer.in, g.written); err != nil {
				t.Errorf("%s: %v", g.name, err)
				return
			}
			g.written++
		case <-ctx.Done():
			return
		}
	}
}

// judge ends the programs and checks that no acknowledged value is lost.
func (g *group) judge(t *testing.T, c *cluster.Cluster) {
	acked := g.producer.end(t)
	require.Len(t, acked, g.written)
	require.Eventually(t, func() bool { return g.missing() == 0 }, waitLimit, 10*time.Millisecond)
	var ending sync.WaitGroup
	defer ending.Wait() // also if the second fails
	ending.Go(func() { g.first.end(t) })
	g.second.end(t)
	ending.Wait()
	count := logged(t, c, g.topic)
	var lost, twice []string
	for _, v := range acked {
		switch n := count[v]; {
		case n == 0:
			lost = append(lost, v)
		case n > 1 && g.idempotent:
			twice = append(twice, v)
		}
	}
	require.Empty(t, lost)
	require.Empty(t, twice)
	t.Logf("%d acknowledged, %d in the log", len(acked), len(count))
}

// logged returns how many times each value occurs in a topic's log.
func logged(t *testing.T, c *cluster.Cluster, topic string) map[string]int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ConsumeTopics(topic))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	count := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for total > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { count[string(r.Value)]++; total-- })
	}
	return count
}
