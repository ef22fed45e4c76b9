package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
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

// A connection's buffer is used again for the next request: what is kept of this
// one must not lie in it.
func TestWhatGroupsKeepIsTheirOwn(t *testing.T) {
	t.Parallel()
	s := startBroker(t, shortDelay)
	coordinatorOf(t, s.cluster, "g")
	c := dial(t, s)
	var joins []kmsg.Request
	for _, name := range []string{"first", "second", "third"} {
		joins = append(joins, joinReq(3, "g", "", func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("of the " + name) }))
	}
	c.send(joins...)
	var ids []string
	var leader *kmsg.JoinGroupResponse
	for _, q := range joins {
		a := c.receive(q).(*kmsg.JoinGroupResponse)
		requireCode(t, nil, a.ErrorCode)
		ids = append(ids, a.MemberID)
		if a.LeaderID == a.MemberID {
			leader = a
		}
	}
	for i, name := range []string{"first", "second", "third"} {
		require.Equal(t, "of the "+name, string(leader.Members[i].ProtocolMetadata))
	}
	c.call(syncReq("g", 1, leader.MemberID, ids...))
	c.call(describeReq(strings.Repeat("x", 1000)))
	for _, id := range ids {
		a := c.call(syncReq("g", 1, id)).(*kmsg.SyncGroupResponse)
		require.Equal(t, "for "+id, string(a.MemberAssignment))
	}
}

// The log of a new coordinator ends in a commit that not all in-sync replicas
// have. Nobody is shown it until they do.
func TestNothingIsLoadedThatCouldBeLost(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, func(c *config) { c.offsetsPartitions, c.replicaLag = 1, time.Hour })
	makeTopic(t, cl.nodes[0].server(), "t", 1)
	s := coordinatorOf(t, cl, "g")
	require.True(t, cl.settled(ctxFor(t)))
	replicas := s.image().byName[offsetsTopic].partitions[0].replicas
	first, second, third := replicas[0], replicas[1], replicas[2]
	require.Equal(t, s.id, first)
	cl.links.sever(first, third)
	cl.links.sever(second, third)
	c := dial(t, s)
	c.send(commitReq("g", -1, "", 10))
	next := cl.nodes[second].server()
	p := next.local(partitionKey{s.offsetsTopicID(), 0})
	require.Eventually(t, func() bool { _, end := p.records(0); return end == 1 }, patience, time.Millisecond)
	require.NoError(t, cl.nodes[first].stop(ctxFor(t)))
	require.Eventually(t, func() bool { return len(next.groups.led()) == 1 }, patience, time.Millisecond)
	for range 10 {
		a := dial(t, next).call(offsetFetchReq(7, "g", 0)).(*kmsg.OffsetFetchResponse)
		requireCode(t, kerr.CoordinatorLoadInProgress, a.ErrorCode)
	}
	cl.links.heal(second, third)
	require.Eventually(t, func() bool {
		a := dial(t, next).call(offsetFetchReq(7, "g", 0)).(*kmsg.OffsetFetchResponse)
		return a.ErrorCode == 0 && a.Topics[0].Partitions[0].Offset == 10
	}, patience, 10*time.Millisecond)
	cl.links.heal(first, third)
}

// A log of offsets stays short, here and at the followers, and is right after
// every move.
func TestOffsetsSurviveMoves(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3, shortDelay, func(c *config) {
		c.groups.offsetsCompactBytes = 20_000
		c.offsetsPartitions, c.brokerSession = 1, time.Second
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
