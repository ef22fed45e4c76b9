package broker

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
)

// These tests use kgo's consumers as any program would.

// groupClient is a kgo member of a group, with the partitions it owns and the values it has seen.
type groupClient struct {
	*kgo.Client
	net    fault.Dialer
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	owned map[int32]bool // guarded by mu
	seen  map[string]int // count of each value; guarded by mu
}

func newGroupClient(t *testing.T, s *Server, opts ...kgo.Opt) *groupClient {
	t.Helper()
	m := &groupClient{net: fault.Dialer{Network: s.cfg.Network}, owned: map[int32]bool{}, seen: map[string]int{}, done: make(chan struct{})}
	change := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range partitions["t"] {
				m.owned[p] = owned
			}
		}
	}
	m.Client = client(t, s, append([]kgo.Opt{
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(50 * time.Millisecond), kgo.SessionTimeout(time.Minute), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.Dialer(m.net.Dial),
	}, opts...)...)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(t.Context())
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			m.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.seen[string(r.Value)]++
			})
		}
	}()
	t.Cleanup(m.stopPolling)
	return m
}

func (m *groupClient) stopPolling() {
	m.cancel()
	<-m.done
}

func (m *groupClient) partitions() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, owned := range m.owned {
		if owned {
			n++
		}
	}
	return n
}

func requireShares(t *testing.T, shares map[*groupClient]int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for m, n := range shares {
			if m.partitions() != n {
				return false
			}
		}
		return true
	}, kafkatest.WaitLimit, time.Millisecond, "shares of the partitions")
}

func produceValues(t *testing.T, s *Server, from, to int) {
	t.Helper()
	cl := client(t, s, kgo.MetadataMinAge(50*time.Millisecond)) // so that it finds another leader soon
	for i := from; i < to; i++ {
		cl.Produce(kafkatest.Context(t), &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, cl.Flush(kafkatest.Context(t)))
}

// requireSeen waits until the members together have seen values 0 to n-1.
func requireSeen(t *testing.T, n int, members ...*groupClient) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := map[string]bool{}
		for _, m := range members {
			m.mu.Lock()
			for v := range m.seen {
				all[v] = true
			}
			m.mu.Unlock()
		}
		return len(all) == n
	}, kafkatest.WaitLimit, time.Millisecond, "records that no member has received")
}

func TestKgoGroup(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay)
	s := cl.Nodes[0].Server()
	makeTopic(t, s, "t", 6)
	produceValues(t, s, 0, 1000)
	a, b, c := newGroupClient(t, s), newGroupClient(t, s), newGroupClient(t, s)
	requireShares(t, map[*groupClient]int{a: 2, b: 2, c: 2})
	requireSeen(t, 1000, a, b, c)

	// One member leaves properly: the others get its partitions at once, and continue at its
	// position.
	require.NoError(t, c.CommitUncommittedOffsets(kafkatest.Context(t)))
	c.stopPolling()
	require.NoError(t, c.LeaveGroupContext(kafkatest.Context(t)))
	requireShares(t, map[*groupClient]int{a: 3, b: 3})
	produceValues(t, s, 1000, 2000)
	requireSeen(t, 2000, a, b, c)

	// All members leave; a later member continues at their positions.
	for _, m := range []*groupClient{a, b} {
		require.NoError(t, m.CommitUncommittedOffsets(kafkatest.Context(t)))
		m.stopPolling()
		require.NoError(t, m.LeaveGroupContext(kafkatest.Context(t)))
	}
	produceValues(t, s, 2000, 2100)
	d := newGroupClient(t, s)
	requireSeen(t, 2100, a, b, c, d)
	d.mu.Lock()
	require.Len(t, d.seen, 100, "what was committed is read again")
	d.mu.Unlock()
}

// ended counts the completed operations of a kind at some brokers.
func ended(at []*Server, kind string) uint64 {
	var sum metric.Stats
	for _, s := range at {
		s.AddTo(&sum)
	}
	o := sum.Operations[kind]
	return o.Completed + o.Expired + o.Cancelled + o.Closed + o.Failed
}

// pollRounds counts the completed rebalances.
func pollRounds(s *Server) uint64 { return ended([]*Server{s}, "join") }

func TestKgoStaticMember(t *testing.T) {
	t.Parallel()
	s := startBroker(t, shortDelay)
	makeTopic(t, s, "t", 4)
	// The first member leads the group. A leader that restarts would make kgo ask for another
	// rebalance.
	a := newGroupClient(t, s, kgo.InstanceID("a"))
	requireShares(t, map[*groupClient]int{a: 4})
	b := newGroupClient(t, s, kgo.InstanceID("b"))
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	before := pollRounds(s)
	for range 3 {
		b.stopPolling()
		b.Close() // a static member does not send LeaveGroup
		b = newGroupClient(t, s, kgo.InstanceID("b"))
		requireShares(t, map[*groupClient]int{a: 2, b: 2})
	}
	require.Equal(t, before, pollRounds(s), "a restart made a rebalance")
	produceValues(t, s, 0, 100)
	requireSeen(t, 100, a, b)
}

// A client is cut off. Another member gets its partitions when its session expires;
// TestSessionEndsInTimeAndNotEarlier checks when that is.
func TestKgoSessionTimeout(t *testing.T) {
	t.Parallel()
	const session = 700 * time.Millisecond
	s := startBroker(t, shortDelay)
	makeTopic(t, s, "t", 4)
	a, b := newGroupClient(t, s, kgo.SessionTimeout(session)), newGroupClient(t, s, kgo.SessionTimeout(session))
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	b.net.Break()
	requireShares(t, map[*groupClient]int{a: 4})
	produceValues(t, s, 0, 100)
	requireSeen(t, 100, a)
}

// The coordinator of a consuming group dies. The members find the new coordinator and continue with
// the same member ids and generation.
func TestKgoGroupSurvivesItsCoordinator(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay, longReplicaLag)
	s := coordinatorOf(t, cl, "g")
	other := cl.Nodes[(s.id+1)%3].Server()
	makeTopic(t, other, "t", 4)
	// A client that happens to ask the dead broker for the coordinator a few times considers its
	// session lost and joins again. Another broker therefore answers at that address.
	var dead atomic.Bool
	deadAddr := s.Addr()
	dialer := kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == deadAddr && dead.Load() {
			addr = other.Addr()
		}
		return s.cfg.Network.DialContext(ctx, network, addr)
	})
	a, b := newGroupClient(t, other, dialer), newGroupClient(t, other, dialer)
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	produceValues(t, other, 0, 500)
	requireSeen(t, 500, a, b)
	memberA, generation := a.GroupMetadata()
	memberB, _ := b.GroupMetadata()
	others := slices.DeleteFunc(cl.running(), func(o *Server) bool { return o == s })
	joins, heartbeats := ended(others, "join"), ended(others, "heartbeat")
	dead.Store(true)
	require.NoError(t, kill(cl, cl.Nodes[s.id]))
	produceValues(t, other, 500, 1000)
	requireSeen(t, 1000, a, b)
	// The coordinator may be any of the others: it may move once more if the machine stalls.
	require.Eventually(t, func() bool { return ended(others, "heartbeat") >= heartbeats+6 }, kafkatest.WaitLimit, time.Millisecond, "heartbeats")
	for m, id := range map[*groupClient]string{a: memberA, b: memberB} {
		gotID, got := m.GroupMetadata()
		require.Equal(t, id, gotID)
		require.Equal(t, generation, got)
	}
	require.Equal(t, joins, ended(others, "join"), "rebalances")
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
}

// The broker does not offer the group protocol of KIP-848: a client that prefers it falls back to
// the classic protocol.
func TestKgoServerSideBalancer(t *testing.T) {
	t.Parallel()
	s := startBrokers(t, 3, shortDelay).Nodes[0].Server()
	makeTopic(t, s, "t", 6)
	produceValues(t, s, 0, 100)
	prefers := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}
	a, b := newGroupClient(t, s, prefers...), newGroupClient(t, s, prefers...)
	requireShares(t, map[*groupClient]int{a: 3, b: 3})
	requireSeen(t, 100, a, b)
}
