package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These tests use real brokers, over TCP.

// shortDelay has groups form quickly.
func shortDelay(c *config) { c.groups.initialRebalanceDelay = 20 * time.Millisecond }

// coordinatorOf asks until a group's coordinator is known and answers.
func coordinatorOf(t *testing.T, c *cluster, group string) *server {
	t.Helper()
	var found *server
	require.Eventually(t, func() bool {
		for _, s := range c.running() {
			q := kmsg.NewPtrFindCoordinatorRequest()
			q.Version, q.CoordinatorKeys = 6, []string{group}
			k := dial(t, s).call(q).(*kmsg.FindCoordinatorResponse).Coordinators[0]
			if k.ErrorCode != 0 {
				continue
			}
			if found = c.nodes[k.NodeID].server(); found == nil {
				continue
			}
			d := dial(t, found).call(describeReq(group)).(*kmsg.DescribeGroupsResponse)
			return d.Groups[0].ErrorCode == 0
		}
		return false
	}, patience, 10*time.Millisecond, "no coordinator")
	return found
}

func TestFindCoordinator(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	c := dial(t, s)
	coordinatorOf(t, s.cluster, "g")
	for version := int16(0); version <= 6; version++ {
		q := kmsg.NewPtrFindCoordinatorRequest()
		q.Version = version
		if version < 4 {
			q.CoordinatorKey = "g"
			a := c.call(q).(*kmsg.FindCoordinatorResponse)
			requireCode(t, nil, a.ErrorCode)
			require.Equal(t, s.addr(), fmt.Sprintf("%s:%d", a.Host, a.Port))
			continue
		}
		q.CoordinatorKeys = []string{"g", "h", "g"}
		a := c.call(q).(*kmsg.FindCoordinatorResponse)
		require.Len(t, a.Coordinators, 3)
		for i, k := range a.Coordinators {
			requireCode(t, nil, k.ErrorCode)
			require.Equal(t, q.CoordinatorKeys[i], k.Key)
			require.Equal(t, s.addr(), fmt.Sprintf("%s:%d", k.Host, k.Port))
		}
		q.CoordinatorType = 1
		requireCode(t, kerr.InvalidRequest, c.call(q).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
	}
}

// Every request of a group's life, in every version, over the wire: receive
// requires that kmsg reads from each answer what was written.
func TestGroupRequestsInEveryVersion(t *testing.T) {
	t.Parallel()
	s := startBroker(t, shortDelay)
	makeTopic(t, s, "t", 1)
	coordinatorOf(t, s.cluster, "g")
	c := dial(t, s)
	for v := int16(0); v <= 9; v++ {
		group := fmt.Sprintf("g%d", v)
		join := joinReq(v, group, "")
		a := c.call(join).(*kmsg.JoinGroupResponse)
		if v >= 4 {
			requireCode(t, kerr.MemberIDRequired, a.ErrorCode)
			join.MemberID = a.MemberID
			a = c.call(join).(*kmsg.JoinGroupResponse)
		}
		requireCode(t, nil, a.ErrorCode)
		require.Len(t, a.Members, 1)

		sync := syncReq(group, a.Generation, a.MemberID, a.MemberID)
		sync.Version = min(v, 5)
		require.Equal(t, "for "+a.MemberID, string(c.call(sync).(*kmsg.SyncGroupResponse).MemberAssignment))
		heartbeat := heartbeatReq(group, a.Generation, a.MemberID)
		heartbeat.Version = min(v, 4)
		requireCode(t, nil, c.call(heartbeat).(*kmsg.HeartbeatResponse).ErrorCode)

		describe := describeReq(group)
		describe.Version = min(v, 5)
		require.Equal(t, "Stable", c.call(describe).(*kmsg.DescribeGroupsResponse).Groups[0].State)
		list := listReq()
		list.Version = min(v, 5)
		require.NotEmpty(t, c.call(list).(*kmsg.ListGroupsResponse).Groups)

		commit := commitReq(group, a.Generation, a.MemberID, 100)
		commit.Version = v
		if v == 0 { // knows no members
			requireCode(t, kerr.UnknownMemberID, commitCode(c.call(commit).(*kmsg.OffsetCommitResponse)))
			commit.Version = 1
		}
		requireCode(t, nil, commitCode(c.call(commit).(*kmsg.OffsetCommitResponse)))
		fetched := c.call(offsetFetchReq(v, group, 0)).(*kmsg.OffsetFetchResponse)
		if v < 8 {
			require.Equal(t, int64(100), fetched.Topics[0].Partitions[0].Offset)
		} else {
			require.Equal(t, int64(100), fetched.Groups[0].Topics[0].Partitions[0].Offset)
		}

		leave := leaveReq(group, a.MemberID)
		leave.Version, leave.MemberID = min(v, 5), a.MemberID
		requireCode(t, nil, c.call(leave).(*kmsg.LeaveGroupResponse).ErrorCode)
		remove := deleteReq(group)
		remove.Version = min(v, 2)
		requireCode(t, nil, c.call(remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
	}
	require.Zero(t, s.groups.groups.Load())
}

// A log of offsets stays short, here and at the followers, and is right after
// every move.
func TestOffsetsSurviveMoves(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay, func(c *config) {
		c.groups.offsetsCompactBytes = 20_000
		c.offsetsPartitions = 1
	})
	makeTopic(t, cl.nodes[0].server(), "t", 100)
	require.True(t, cl.settled(ctxFor(t)))
	last := map[int32]int64{}
	for move := range 3 {
		s := coordinatorOf(t, cl, "g")
		got := dial(t, s).call(offsetFetchReq(8, "g")).(*kmsg.OffsetFetchResponse).Groups[0]
		n := 0
		for _, rt := range got.Topics {
			for _, p := range rt.Partitions {
				require.Equal(t, last[p.Partition], p.Offset, "partition %d after %d moves", p.Partition, move)
				n++
			}
		}
		require.Len(t, last, n)
		conns := make([]*raw, 4)
		for i := range conns {
			conns[i] = dial(t, s)
		}
		for i := range int64(500) {
			p, c := int32(i%100), conns[i%4]
			q := kmsg.NewPtrOffsetCommitRequest()
			q.Version, q.Group = 9, "g"
			last[p]++
			resp := c.call(addCommit(q, "t", p, last[p], "")).(*kmsg.OffsetCommitResponse)
			requireCode(t, nil, commitCode(resp))
		}
		key := partitionKey{s.offsetsTopicID(), 0}
		for _, other := range cl.running() {
			require.Eventually(t, func() bool { return other.local(key).kept() < 150_000 }, patience, time.Millisecond,
				"broker %d keeps %d bytes", other.id, other.local(key).kept())
		}
		if move%2 == 0 {
			require.NoError(t, cl.nodes[s.id].kill())
		} else {
			require.NoError(t, cl.nodes[s.id].stop(ctxFor(t)))
		}
		coordinatorOf(t, cl, "g")
		require.NoError(t, cl.nodes[s.id].start())
		require.True(t, cl.settled(ctxFor(t)))
	}
}

// A broker that is stopped in order tells those who wait for a round.
func TestStoppedCoordinatorAnswersWhoIsParked(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 2)
	s := coordinatorOf(t, cl, "g")
	c := dial(t, s)
	join := joinReq(3, "g", "", withRebalance(time.Hour))
	c.send(join)
	require.Eventually(t, func() bool { return s.groups.joins.Delayed() == 1 }, patience, time.Millisecond)
	require.NoError(t, cl.nodes[s.id].stop(ctxFor(t)))
	requireCode(t, kerr.NotCoordinator, c.receive(join).(*kmsg.JoinGroupResponse).ErrorCode)
	require.NotEqual(t, s.id, coordinatorOf(t, cl, "g").id)
}

// groupClient is a kgo member of a group, and what it knows of its partitions.
type groupClient struct {
	*kgo.Client
	net    breakable
	cancel context.CancelFunc
	done   chan struct{}

	heartbeat atomic.Int64 // when the latest that was answered was sent

	mu    sync.Mutex
	owned map[int32]bool // guarded by mu
	seen  map[string]int // values and how often; guarded by mu
}

func newGroupClient(t *testing.T, s *server, opts ...kgo.Opt) *groupClient {
	t.Helper()
	m := &groupClient{owned: map[int32]bool{}, seen: map[string]int{}, done: make(chan struct{})}
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
		kgo.Dialer(m.net.dial), kgo.WithHooks(m),
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

// OnBrokerE2E is a hook of kgo's.
func (m *groupClient) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Heartbeat) && e2e.Err() == nil {
		m.heartbeat.Store(time.Now().Add(-e2e.DurationE2E() - e2e.WriteWait).UnixNano())
	}
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
	}, patience, time.Millisecond, "shares of the partitions")
}

func produceValues(t *testing.T, s *server, from, to int) {
	t.Helper()
	cl := client(t, s)
	for i := from; i < to; i++ {
		cl.Produce(ctxFor(t), &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, cl.Flush(ctxFor(t)))
}

// requireSeen waits until the members together have seen values 0 to n.
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
	}, patience, time.Millisecond, "records that nobody has seen")
}

func TestKgoGroup(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay)
	s := cl.nodes[0].server()
	makeTopic(t, s, "t", 6)
	produceValues(t, s, 0, 1000)
	a, b, c := newGroupClient(t, s), newGroupClient(t, s), newGroupClient(t, s)
	requireShares(t, map[*groupClient]int{a: 2, b: 2, c: 2})
	requireSeen(t, 1000, a, b, c)

	// One leaves, and says so: the others have its partitions at once, and go on
	// where it was.
	require.NoError(t, c.CommitUncommittedOffsets(ctxFor(t)))
	c.stopPolling()
	require.NoError(t, c.LeaveGroupContext(ctxFor(t)))
	requireShares(t, map[*groupClient]int{a: 3, b: 3})
	produceValues(t, s, 1000, 2000)
	requireSeen(t, 2000, a, b, c)

	// All leave; who comes later goes on where they were.
	for _, m := range []*groupClient{a, b} {
		require.NoError(t, m.CommitUncommittedOffsets(ctxFor(t)))
		m.stopPolling()
		require.NoError(t, m.LeaveGroupContext(ctxFor(t)))
	}
	produceValues(t, s, 2000, 2100)
	d := newGroupClient(t, s)
	requireSeen(t, 2100, a, b, c, d)
	d.mu.Lock()
	require.Len(t, d.seen, 100, "what was committed is read again")
	d.mu.Unlock()
}

func generationOf(t *testing.T, s *server, id string) (generation int32) {
	t.Helper()
	require.Nil(t, s.groups.onGroup(id, false, func(g *group, _ *later) { generation = g.generation }))
	return generation
}

func TestKgoStaticMember(t *testing.T) {
	t.Parallel()
	s := startBroker(t, shortDelay)
	makeTopic(t, s, "t", 4)
	// The first one leads. kgo has a leader that comes back ask for another round.
	a := newGroupClient(t, s, kgo.InstanceID("a"))
	requireShares(t, map[*groupClient]int{a: 4})
	b := newGroupClient(t, s, kgo.InstanceID("b"))
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	before := generationOf(t, s, "g")
	for range 3 {
		b.stopPolling()
		b.Close() // a static member does not leave
		b = newGroupClient(t, s, kgo.InstanceID("b"))
		requireShares(t, map[*groupClient]int{a: 2, b: 2})
	}
	require.Equal(t, before, generationOf(t, s, "g"), "a restart made a rebalance")
	produceValues(t, s, 0, 100)
	requireSeen(t, 100, a, b)
}

// A client is cut off. Its partitions are another's when its session ends, and no
// earlier.
func TestKgoSessionTimeout(t *testing.T) {
	t.Parallel()
	const session = 700 * time.Millisecond
	s := startBroker(t, shortDelay)
	makeTopic(t, s, "t", 4)
	a, b := newGroupClient(t, s, kgo.SessionTimeout(session)), newGroupClient(t, s, kgo.SessionTimeout(session))
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	require.Eventually(t, func() bool { return b.heartbeat.Load() > 0 }, patience, time.Millisecond)
	b.net.crash()
	heard := time.Unix(0, b.heartbeat.Load())
	requireShares(t, map[*groupClient]int{a: 4})
	require.GreaterOrEqual(t, time.Since(heard), session, "too early")
	produceValues(t, s, 0, 100)
	requireSeen(t, 100, a)
}

// The coordinator dies under a group that consumes: the members find the new one
// and go on.
func TestKgoGroupSurvivesItsCoordinator(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay)
	s := coordinatorOf(t, cl, "g")
	other := cl.nodes[(s.id+1)%3].server()
	makeTopic(t, other, "t", 4)
	seeds := kgo.SeedBrokers(cl.addrs()...)
	a, b := newGroupClient(t, other, seeds), newGroupClient(t, other, seeds)
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
	produceValues(t, other, 0, 500)
	requireSeen(t, 500, a, b)
	require.NoError(t, cl.nodes[s.id].kill())
	produceValues(t, other, 500, 1000)
	requireSeen(t, 1000, a, b)
	coordinatorOf(t, cl, "g")
	requireShares(t, map[*groupClient]int{a: 2, b: 2})
}
