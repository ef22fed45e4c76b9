package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// These tests use real brokers, over TCP.

// shortDelay makes groups form quickly.
func shortDelay(c *Config) { c.Groups.InitialRebalanceDelay = 20 * time.Millisecond }

// coordinatorOf asks for a group's coordinator until it is known and answers.
func coordinatorOf(t *testing.T, c *Cluster, group string) *Server {
	t.Helper()
	var found *Server
	require.Eventually(t, func() bool {
		for _, s := range c.running() {
			q := kmsg.NewPtrFindCoordinatorRequest()
			q.Version, q.CoordinatorKeys = 6, []string{group}
			k := dial(t, s).Call(q).(*kmsg.FindCoordinatorResponse).Coordinators[0]
			if k.ErrorCode != 0 {
				continue
			}
			if found = c.Nodes[k.NodeID].Server(); found == nil {
				continue
			}
			d := dial(t, found).Call(kafkatest.DescribeGroups(group)).(*kmsg.DescribeGroupsResponse)
			return d.Groups[0].ErrorCode == 0
		}
		return false
	}, kafkatest.WaitLimit, 10*time.Millisecond, "no coordinator")
	return found
}

// The coordinator of each partition of the offsets topic finishes its load, although the first load
// runs while the broker has not yet reached the last partition.
func TestEachCoordinatorLoads(t *testing.T) {
	t.Parallel()
	const partitions = 1 << 10
	cl := startBrokers(t, 1, func(c *Config) { c.Meta.OffsetsPartitions = partitions })
	s := cl.Nodes[0].Server()
	coordinatorOf(t, cl, "g")
	groups := map[int32]string{}
	for i := 0; len(groups) < partitions; i++ {
		g := fmt.Sprint("g", i)
		groups[s.groups.PartitionOf(g)] = g
	}
	q := kafkatest.DescribeGroups(slices.Collect(maps.Values(groups))...)
	require.Eventually(t, func() bool {
		for _, g := range dial(t, s).Call(q).(*kmsg.DescribeGroupsResponse).Groups {
			if g.ErrorCode == kerr.CoordinatorLoadInProgress.Code {
				return false
			}
		}
		return true
	}, kafkatest.WaitLimit, 50*time.Millisecond)
}

func TestFindCoordinator(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 1)
	s := cl.Nodes[0].Server()
	c := dial(t, s)
	coordinatorOf(t, cl, "g")
	for version := int16(0); version <= 6; version++ {
		q := kmsg.NewPtrFindCoordinatorRequest()
		q.Version = version
		if version < 4 {
			q.CoordinatorKey = "g"
			a := c.Call(q).(*kmsg.FindCoordinatorResponse)
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			require.Equal(t, s.Addr(), fmt.Sprintf("%s:%d", a.Host, a.Port))
			continue
		}
		q.CoordinatorKeys = []string{"g", "h", "g"}
		a := c.Call(q).(*kmsg.FindCoordinatorResponse)
		require.Len(t, a.Coordinators, 3)
		for i, k := range a.Coordinators {
			kafkatest.RequireCode(t, nil, k.ErrorCode)
			require.Equal(t, q.CoordinatorKeys[i], k.Key)
			require.Equal(t, s.Addr(), fmt.Sprintf("%s:%d", k.Host, k.Port))
		}
		q.CoordinatorType = 1
		kafkatest.RequireCode(t, kerr.TransactionalIDAuthorizationFailed, c.Call(q).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
		q.CoordinatorType = 2 // share groups
		kafkatest.RequireCode(t, kerr.InvalidRequest, c.Call(q).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
	}
}

// Every request of a group, in every version, over the wire. Receive requires that kmsg can decode
// each answer.
func TestGroupRequestsInEveryVersion(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 1, shortDelay)
	s := cl.Nodes[0].Server()
	makeTopic(t, s, "t", 1)
	coordinatorOf(t, cl, "g")
	c := dial(t, s)
	for v := int16(0); v <= 9; v++ {
		group := fmt.Sprintf("g%d", v)
		join := kafkatest.Join(v, group, "")
		a := c.Call(join).(*kmsg.JoinGroupResponse)
		if v >= 4 {
			kafkatest.RequireCode(t, kerr.MemberIDRequired, a.ErrorCode)
			join.MemberID = a.MemberID
			a = c.Call(join).(*kmsg.JoinGroupResponse)
		}
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Len(t, a.Members, 1)

		sync := kafkatest.Sync(group, a.Generation, a.MemberID, a.MemberID)
		sync.Version = min(v, 5)
		require.Equal(t, "for "+a.MemberID, string(c.Call(sync).(*kmsg.SyncGroupResponse).MemberAssignment))
		heartbeat := kafkatest.Heartbeat(group, a.Generation, a.MemberID)
		heartbeat.Version = min(v, 4)
		kafkatest.RequireCode(t, nil, c.Call(heartbeat).(*kmsg.HeartbeatResponse).ErrorCode)

		describe := kafkatest.DescribeGroups(group)
		describe.Version = min(v, 5)
		require.Equal(t, "Stable", c.Call(describe).(*kmsg.DescribeGroupsResponse).Groups[0].State)
		list := kafkatest.ListGroups()
		list.Version = min(v, 5)
		require.NotEmpty(t, c.Call(list).(*kmsg.ListGroupsResponse).Groups)

		commit := kafkatest.Commit(group, a.Generation, a.MemberID, 100)
		commit.Version = v
		if v == 0 { // version 0 has no member id
			kafkatest.RequireCode(t, kerr.UnknownMemberID, kafkatest.CommitCode(c.Call(commit).(*kmsg.OffsetCommitResponse)))
			commit.Version = 1
		}
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(c.Call(commit).(*kmsg.OffsetCommitResponse)))
		fetched := c.Call(kafkatest.OffsetFetch(v, group, 0)).(*kmsg.OffsetFetchResponse)
		if v < 8 {
			require.Equal(t, int64(100), fetched.Topics[0].Partitions[0].Offset)
		} else {
			require.Equal(t, int64(100), fetched.Groups[0].Topics[0].Partitions[0].Offset)
		}

		leave := kafkatest.Leave(group, a.MemberID)
		leave.Version, leave.MemberID = min(v, 5), a.MemberID
		kafkatest.RequireCode(t, nil, c.Call(leave).(*kmsg.LeaveGroupResponse).ErrorCode)
		remove := kafkatest.DeleteGroups(group)
		remove.Version = min(v, 2)
		kafkatest.RequireCode(t, nil, c.Call(remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
	}
	require.Zero(t, s.groups.Usage().Groups)
}

// A connection's buffer is reused for the next request, so the coordinator must copy the data it
// keeps.
func TestGroupsCopyTheirData(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cl := startBrokers(t, 1, inMemory, func(c *Config) { c.Groups.InitialRebalanceDelay = 2 * time.Second }) // long enough for all three
		s := cl.Nodes[0].Server()
		coordinatorOf(t, cl, "g")
		c := dial(t, s)
		var joins []kmsg.Request
		for _, name := range []string{"first", "second", "third"} {
			joins = append(joins, kafkatest.Join(3, "g", "", func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("of the " + name) }))
		}
		c.Send(joins...)
		var ids []string
		var leader *kmsg.JoinGroupResponse
		for _, q := range joins {
			a := c.Receive(q).(*kmsg.JoinGroupResponse)
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			ids = append(ids, a.MemberID)
			if a.LeaderID == a.MemberID {
				leader = a
			}
		}
		for i, name := range []string{"first", "second", "third"} {
			require.Equal(t, "of the "+name, string(leader.Members[i].ProtocolMetadata))
		}
		c.Call(kafkatest.Sync("g", 1, leader.MemberID, ids...))
		c.Call(kafkatest.DescribeGroups(strings.Repeat("x", 1000)))
		for _, id := range ids {
			a := c.Call(kafkatest.Sync("g", 1, id)).(*kmsg.SyncGroupResponse)
			require.Equal(t, "for "+id, string(a.MemberAssignment))
		}
	})
}

// The log of a new coordinator ends in a commit that not all in-sync replicas have. The coordinator
// does not return it until they do.
func TestNothingIsLoadedThatCouldBeLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cl := startBrokers(t, 3, inMemory, func(c *Config) { c.Meta.OffsetsPartitions, c.ReplicaLag = 1, time.Hour })
		makeTopic(t, cl.Nodes[0].Server(), "t", 1)
		s := coordinatorOf(t, cl, "g")
		whole(t, cl)
		replicas := s.image().ByName[meta.OffsetsTopic].Partitions[0].Replicas
		first, second, third := replicas[0], replicas[1], replicas[2]
		require.Equal(t, s.id, first)
		cl.Links.Cut(first, third)
		cl.Links.Cut(second, third)
		c := dial(t, s)
		c.Send(kafkatest.Commit("g", -1, "", 10))
		next := cl.Nodes[second].Server()
		p := next.local(meta.PartitionKey{Topic: s.offsetsTopicID(), Index: 0})
		require.Eventually(t, func() bool { _, end := p.Records(0); return end == 1 }, kafkatest.WaitLimit, time.Millisecond)
		require.NoError(t, cl.Nodes[first].Stop(kafkatest.Context(t)))
		require.Eventually(t, func() bool {
			a := dial(t, next).Call(kafkatest.OffsetFetch(7, "g", 0)).(*kmsg.OffsetFetchResponse)
			return a.ErrorCode != kerr.NotCoordinator.Code
		}, kafkatest.WaitLimit, time.Millisecond)
		for range 10 {
			a := dial(t, next).Call(kafkatest.OffsetFetch(7, "g", 0)).(*kmsg.OffsetFetchResponse)
			kafkatest.RequireCode(t, kerr.CoordinatorLoadInProgress, a.ErrorCode)
		}
		cl.Links.Heal(second, third)
		require.Eventually(t, func() bool {
			a := dial(t, next).Call(kafkatest.OffsetFetch(7, "g", 0)).(*kmsg.OffsetFetchResponse)
			return a.ErrorCode == 0 && a.Topics[0].Partitions[0].Offset == 10
		}, kafkatest.WaitLimit, 10*time.Millisecond)
		cl.Links.Heal(first, third)
	})
}

// An offsets log stays short, at the leader and the followers, and is correct after every move,
// even if its live records exceed the limit of uncommitted bytes.
func TestOffsetsSurviveMoves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cl := startBrokers(t, 3, inMemory, shortDelay, func(c *Config) {
			c.Groups.OffsetsCompactBytes, c.Groups.MaxBatch = 20_000, 1000
			c.Replica.MaxUncommitted = 4000
			c.Meta.OffsetsPartitions, c.Meta.BrokerSession = 1, time.Hour
		})
		makeTopic(t, cl.Nodes[0].Server(), "t", 100)
		whole(t, cl)
		last := map[int32]int64{}
		for move := range 3 {
			s := coordinatorOf(t, cl, "g")
			got := dial(t, s).Call(kafkatest.OffsetFetch(8, "g")).(*kmsg.OffsetFetchResponse).Groups[0]
			n := 0
			for _, rt := range got.Topics {
				for _, p := range rt.Partitions {
					require.Equal(t, last[p.Partition], p.Offset, "partition %d after %d moves", p.Partition, move)
					n++
				}
			}
			require.Len(t, last, n)
			conns := make([]*kafkatest.Conn, 4)
			for i := range conns {
				conns[i] = dial(t, s)
			}
			for i := range int64(500) {
				p, c := int32(i%100), conns[i%4]
				q := kmsg.NewPtrOffsetCommitRequest()
				q.Version, q.Group = 9, "g"
				last[p]++
				resp := c.Call(kafkatest.AddCommit(q, "t", p, last[p], "")).(*kmsg.OffsetCommitResponse)
				kafkatest.RequireCode(t, nil, kafkatest.CommitCode(resp))
			}
			key := meta.PartitionKey{Topic: s.offsetsTopicID(), Index: 0}
			for _, other := range cl.running() {
				require.Eventually(t, func() bool { return other.local(key).Offsets().Bytes < 150_000 }, kafkatest.WaitLimit, time.Millisecond,
					"broker %d keeps %d bytes", other.id, other.local(key).Offsets().Bytes)
			}
			if move%2 == 0 {
				require.NoError(t, kill(cl, cl.Nodes[s.id]))
			} else {
				require.NoError(t, cl.Nodes[s.id].Stop(kafkatest.Context(t)))
			}
			coordinatorOf(t, cl, "g")
			require.NoError(t, cl.Nodes[s.id].Start())
			whole(t, cl)
		}
	})
}

// A broker that stops in an orderly way answers members that wait for a rebalance.
func TestStoppedCoordinatorAnswersParkedMembers(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 2, func(c *Config) { c.Groups.InitialRebalanceDelay = time.Hour })
	s := coordinatorOf(t, cl, "g")
	c := dial(t, s)
	join := kafkatest.Join(3, "g", "", kafkatest.WithRebalance(time.Hour))
	c.Send(join)
	require.Eventually(t, func() bool { return s.Waiting()["join"] == 1 }, kafkatest.WaitLimit, time.Millisecond)
	require.NoError(t, cl.Nodes[s.id].Stop(kafkatest.Context(t)))
	kafkatest.RequireCode(t, kerr.NotCoordinator, c.Receive(join).(*kmsg.JoinGroupResponse).ErrorCode)
	require.NotEqual(t, s.id, coordinatorOf(t, cl, "g").id)
}
