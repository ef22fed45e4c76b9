package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// staticGroup is a stable group of static members a, b, c, ... as many as asked
// for; leader is among them.
func (b *groupBench) staticGroup(members int, change ...func(*kmsg.JoinGroupRequest)) (byName map[string]string, leader string, generation int32) {
	b.t.Helper()
	var joins []*sent
	for i := range members {
		joins = append(joins, b.send(joinReq(9, "g", "", append(change, withInstance(string(rune('a'+i))))...)))
	}
	b.pass(b.co.cfg.initialRebalanceDelay + 2*time.Millisecond)
	byName = map[string]string{}
	for i, s := range joins {
		byName[string(rune('a'+i))] = answered[*kmsg.JoinGroupResponse](s).MemberID
	}
	ids, generation := b.syncAll("g", joins)
	for name, id := range byName {
		if id == ids[0] {
			leader = name
		}
	}
	return byName, leader, generation
}

func TestStaticMemberComesBack(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, leader, generation := b.staticGroup(2)
		require.Equal(t, "a", leader, "the first that came")

		// The follower. Its place, its assignment, and nobody else notices.
		back := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", "", withInstance("b"))))
		requireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation, back.Generation)
		require.NotEqual(t, ids["b"], back.MemberID)
		require.Equal(t, ids["a"], back.LeaderID)
		got := answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", generation, back.MemberID)))
		require.Equal(t, "for "+ids["b"], string(got.MemberAssignment))
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		b.requireHeartbeat(nil, "g", generation, back.MemberID)

		// The process that was there before, if it still runs, is fenced.
		old := heartbeatReq("g", generation, ids["b"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids["b"])
		old.InstanceID = kmsg.StringPtr("b")
		requireCode(t, kerr.FencedInstanceID, answered[*kmsg.HeartbeatResponse](b.send(old)).ErrorCode)
		join := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", ids["b"], withInstance("b"))))
		requireCode(t, kerr.FencedInstanceID, join.ErrorCode)
		sync := syncReq("g", generation, ids["b"])
		sync.InstanceID = kmsg.StringPtr("b")
		requireCode(t, kerr.FencedInstanceID, answered[*kmsg.SyncGroupResponse](b.send(sync)).ErrorCode)
		commit := commitReq("g", generation, ids["b"], 1)
		commit.InstanceID = kmsg.StringPtr("b")
		requireCode(t, kerr.FencedInstanceID, commitCode(answered[*kmsg.OffsetCommitResponse](b.send(commit))))
		leave := leaveReq("g", ids["b"])
		leave.Members[0].InstanceID = kmsg.StringPtr("b")
		requireCode(t, kerr.FencedInstanceID, answered[*kmsg.LeaveGroupResponse](b.send(leave)).Members[0].ErrorCode)

		require.Equal(t, 2, b.co.sessions.Len())
	})
}

// Its session begins when it comes back; the one that it had does not count.
func TestSessionOfAStaticMemberThatComesBack(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _, generation := b.staticGroup(2, withSession(3*time.Second))
		b.pass(2 * time.Second)
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		back := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", "", withInstance("b"), withSession(2*time.Second))))
		b.pass(2*time.Second - 1)
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		b.pass(2 * b.srv.cfg.tick)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, back.MemberID)
	})
}

// The leader comes back and must not assign anew: nobody would hear of it.
func TestStaticLeaderComesBack(t *testing.T) {
	t.Parallel()
	for version, skips := range map[int16]bool{8: false, 9: true} {
		inGroupBench(t, func(b *groupBench) {
			ids, leader, generation := b.staticGroup(2)
			back := answered[*kmsg.JoinGroupResponse](b.send(joinReq(version, "g", "", withInstance(leader))))
			requireCode(t, nil, back.ErrorCode)
			require.Equal(t, generation, back.Generation)
			require.Equal(t, skips, back.SkipAssignment)
			if skips {
				require.Equal(t, back.MemberID, back.LeaderID)
				require.Len(t, back.Members, 2)
			} else {
				require.Equal(t, ids[leader], back.LeaderID)
				require.Empty(t, back.Members)
			}
			got := answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", generation, back.MemberID)))
			require.Equal(t, "for "+ids[leader], string(got.MemberAssignment))
		})
	}
}

func TestStaticMemberComesBackWithAnotherProtocol(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _, generation := b.staticGroup(2, withProtocols("x", "y"))
		join := b.send(joinReq(9, "g", "", withInstance("b"), withProtocols("y")))
		join.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		again := b.send(joinReq(9, "g", ids["a"], withInstance("a"), withProtocols("x", "y")))
		require.Equal(t, "y", *answered[*kmsg.JoinGroupResponse](join).Protocol)
		b.syncAll("g", []*sent{join, again})
	})
}

// While the leader assigns, a new id would get nothing.
func TestStaticMemberComesBackAmidARebalance(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		joinA, joinB := b.send(joinReq(9, "g", "", withInstance("a"))), b.send(joinReq(9, "g", "", withInstance("b")))
		backB := b.send(joinReq(9, "g", "", withInstance("b"))) // while joining
		requireCode(t, kerr.FencedInstanceID, answered[*kmsg.JoinGroupResponse](joinB).ErrorCode)
		backB.requireParked()
		b.pass(2 * time.Second)
		a, second := answered[*kmsg.JoinGroupResponse](joinA), answered[*kmsg.JoinGroupResponse](backB)
		require.Len(t, a.Members, 2)
		sync := b.send(syncReq("g", 1, second.MemberID))
		sync.requireParked()

		backB = b.send(joinReq(9, "g", "", withInstance("b"))) // while completing
		requireCode(t, kerr.FencedInstanceID, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
		backB.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", 1, a.MemberID)
		_, generation := b.syncAll("g", []*sent{b.send(joinReq(9, "g", a.MemberID, withInstance("a"))), backB})
		require.Equal(t, int32(2), generation)
	})
}

// A static member that does not join again keeps its place, for its session.
func TestStaticMemberIsMissingFromARound(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, leader, generation := b.staticGroup(2, withSession(time.Minute))
		require.Equal(t, "a", leader)
		join := b.send(joinReq(9, "g", ids["b"], withInstance("b"), withSession(time.Minute), withProtocols("range", "more")))
		b.pass(10*time.Second + 2*b.srv.cfg.tick)
		a := answered[*kmsg.JoinGroupResponse](join)
		require.Equal(t, ids["b"], a.LeaderID, "the one that is here")
		require.Len(t, a.Members, 2, "and both are assigned partitions")
		next, _ := b.syncAll("g", []*sent{join})
		require.Equal(t, []string{ids["b"]}, next)
		b.requireHeartbeat(nil, "g", generation+1, ids["b"])
		b.pass(30 * time.Second) // longer than it would have to sync
		b.requireHeartbeat(nil, "g", generation+1, ids["b"])
		back := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", "", withInstance("a"), withSession(time.Minute))))
		requireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation+1, back.Generation)
	})
}

// Nobody joins again: the round goes on waiting until somebody does, or the
// sessions end.
func TestStaticMembersAreAllMissing(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.staticGroup(2, withSession(25*time.Second))
		id := b.newID("g")
		b.send(joinReq(9, "g", id)).requireParked()
		answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("g", id)))
		b.pass(24 * time.Second) // two rebalance timeouts
		require.Equal(t, groupPreparing, b.state("g"))
		b.pass(2 * time.Second)
		require.Zero(t, b.co.groups.Load())
	})
}

func TestStaticMemberIsRemovedByName(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _, generation := b.staticGroup(2)
		leave := leaveReq("g", "", "")
		leave.Members[0].InstanceID, leave.Members[1].InstanceID = kmsg.StringPtr("b"), kmsg.StringPtr("none")
		a := answered[*kmsg.LeaveGroupResponse](b.send(leave))
		requireCode(t, nil, a.Members[0].ErrorCode)
		requireCode(t, kerr.UnknownMemberID, a.Members[1].ErrorCode)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids["b"])
	})
}

// A full group takes back who has a place in it.
func TestStaticMemberComesBackToAFullGroup(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		_, _, generation := b.staticGroup(2)
		back := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", "", withInstance("b"))))
		requireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation, back.Generation)
		requireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", "", withInstance("c")))).ErrorCode)
	}, func(c *groupConfig) { c.maxMembers = 2 })
}
