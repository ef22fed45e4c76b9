package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// staticGroup returns a stable group of static members a, b, c, ..., as many as asked for, and
// which of them leads.
func (b *fixture) staticGroup(members int, change ...func(*kmsg.JoinGroupRequest)) (byName map[string]string, leader string, generation int32) {
	b.t.Helper()
	var joins []*sent
	for i := range members {
		joins = append(joins, b.send(kafkatest.Join(9, "g", "", append(change, kafkatest.WithInstance(string(rune('a'+i))))...)))
	}
	b.pass(b.co.cfg.InitialRebalanceDelay + 2*time.Millisecond)
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
	withFixture(t, func(b *fixture) {
		ids, leader, generation := b.staticGroup(2)
		require.Equal(t, "a", leader, "the first that came")

		// The follower returns: it gets its slot and its assignment, and no other member notices.
		back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"))))
		kafkatest.RequireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation, back.Generation)
		require.NotEqual(t, ids["b"], back.MemberID)
		require.Equal(t, ids["a"], back.LeaderID)
		got := answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", generation, back.MemberID)))
		require.Equal(t, "for "+ids["b"], string(got.MemberAssignment))
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		b.requireHeartbeat(nil, "g", generation, back.MemberID)

		// The earlier process, if it still runs, is fenced.
		old := kafkatest.Heartbeat("g", generation, ids["b"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids["b"])
		old.InstanceID = kmsg.StringPtr("b")
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.HeartbeatResponse](b.send(old)).ErrorCode)
		join := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ids["b"], kafkatest.WithInstance("b"))))
		kafkatest.RequireCode(t, kerr.FencedInstanceID, join.ErrorCode)
		sync := kafkatest.Sync("g", generation, ids["b"])
		sync.InstanceID = kmsg.StringPtr("b")
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.SyncGroupResponse](b.send(sync)).ErrorCode)
		commit := kafkatest.Commit("g", generation, ids["b"], 1)
		commit.InstanceID = kmsg.StringPtr("b")
		kafkatest.RequireCode(t, kerr.FencedInstanceID, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(commit))))
		leave := kafkatest.Leave("g", ids["b"])
		leave.Members[0].InstanceID = kmsg.StringPtr("b")
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.LeaveGroupResponse](b.send(leave)).Members[0].ErrorCode)

		require.Equal(t, 2, b.co.sessions.Len())
	})
}

// A new process gets its id only when every in-sync replica has it: otherwise the next coordinator
// could fence a live member.
func TestTakeOverIsReplicatedFirst(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(2)
		takeOver := func() *sent {
			s := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b")))
			s.requireParked()
			return s
		}
		b.log.held = true
		before, back := takeOver(), takeOver() // a third process
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.JoinGroupResponse](before).ErrorCode)
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		b.log.release(0, nil)
		back.requireParked()
		b.log.release(0, nil)
		a := answered[*kmsg.JoinGroupResponse](back)
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, generation, a.Generation)
		require.Equal(t, 2, b.co.sessions.Len())

		// The replicas never get the new id, and the coordinator moves: the previous member is
		// still known, and its slot is taken over again.
		_, end := b.log.Records(0)
		back = takeOver()
		b.co.Resign(0, 2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](back).ErrorCode)
		b.log.truncate(end)
		b.log.release(0, kerr.NotLeaderForPartition)
		b.lead(2)
		b.requireHeartbeat(nil, "g", generation, a.MemberID)
		back = takeOver()
		b.log.release(0, nil)
		kafkatest.RequireCode(t, nil, answered[*kmsg.JoinGroupResponse](back).ErrorCode)
	})
}

// A record whose write fails makes the group join again, and so does any other event in between.
// The new process's join counts for that round.
func TestTakeOverThatIsNotReplicated(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(b *fixture){
		"timed out":        func(b *fixture) { b.log.release(0, kerr.RequestTimedOut) },
		"too few replicas": func(b *fixture) { b.log.release(0, kerr.NotEnoughReplicas) },
		"a member goes": func(b *fixture) {
			leave := kafkatest.Leave("g", "")
			leave.Members[0].InstanceID = kmsg.StringPtr("c")
			kafkatest.RequireCode(b.t, nil, answered[*kmsg.LeaveGroupResponse](b.send(leave)).Members[0].ErrorCode)
			b.log.release(0, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFixture(t, func(b *fixture) {
				ids, _, generation := b.staticGroup(3)
				b.log.held = true
				back := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b")))
				back.requireParked()
				meanwhile(b)
				back.requireParked()
				b.log.held = false
				b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
				joins := []*sent{back, b.send(kafkatest.Join(9, "g", ids["a"], kafkatest.WithInstance("a")))}
				if name != "a member goes" {
					joins = append(joins, b.send(kafkatest.Join(9, "g", ids["c"], kafkatest.WithInstance("c"))))
				}
				_, next := b.syncAll("g", joins)
				require.Equal(t, generation+1, next)
				require.Equal(t, len(joins), b.co.sessions.Len())
			})
		})
	}
}

// The member leaves, or is dropped, before it is answered.
func TestTakeOverIsGivenUp(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, _ := b.staticGroup(2)
		b.log.held = true
		back := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b")))
		back.requireParked()
		leave := kafkatest.Leave("g", "")
		leave.Members[0].InstanceID = kmsg.StringPtr("b")
		kafkatest.RequireCode(t, nil, answered[*kmsg.LeaveGroupResponse](b.send(leave)).Members[0].ErrorCode)
		kafkatest.RequireCode(t, kerr.UnknownMemberID, answered[*kmsg.JoinGroupResponse](back).ErrorCode)
		b.log.release(0, nil)
		b.log.held = false
		b.syncAll("g", []*sent{b.send(kafkatest.Join(9, "g", ids["a"], kafkatest.WithInstance("a")))})
	})
}

// The session begins when the member comes back; the old session does not count.
func TestSessionOfAStaticMemberThatComesBack(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(2, kafkatest.WithSession(3*time.Second))
		b.pass(2 * time.Second)
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"), kafkatest.WithSession(2*time.Second))))
		b.pass(2*time.Second - 1)
		b.requireHeartbeat(nil, "g", generation, ids["a"])
		b.pass(2 * fixtureTick)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, back.MemberID)
	})
}

// A leader that comes back must not assign again, because no member would get the new assignment.
func TestStaticLeaderComesBack(t *testing.T) {
	t.Parallel()
	for version, skips := range map[int16]bool{8: false, 9: true} {
		withFixture(t, func(b *fixture) {
			ids, leader, generation := b.staticGroup(2)
			back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(version, "g", "", kafkatest.WithInstance(leader))))
			kafkatest.RequireCode(t, nil, back.ErrorCode)
			require.Equal(t, generation, back.Generation)
			require.Equal(t, skips, back.SkipAssignment)
			if skips {
				require.Equal(t, back.MemberID, back.LeaderID)
				require.Len(t, back.Members, 2)
			} else {
				require.Equal(t, ids[leader], back.LeaderID)
				require.Empty(t, back.Members)
			}
			got := answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", generation, back.MemberID)))
			require.Equal(t, "for "+ids[leader], string(got.MemberAssignment))
		})
	}
}

func TestStaticMemberComesBackWithAnotherProtocol(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(2, kafkatest.WithProtocols("x", "y"))
		join := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"), kafkatest.WithProtocols("y")))
		join.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		again := b.send(kafkatest.Join(9, "g", ids["a"], kafkatest.WithInstance("a"), kafkatest.WithProtocols("x", "y")))
		require.Equal(t, "y", *answered[*kmsg.JoinGroupResponse](join).Protocol)
		b.syncAll("g", []*sent{join, again})
	})
}

// While the leader assigns, a new id would get no assignment.
func TestStaticMemberComesBackDuringARebalance(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		joinA, joinB := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("a"))), b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b")))
		backB := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"))) // while joining
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.JoinGroupResponse](joinB).ErrorCode)
		backB.requireParked()
		b.pass(2 * time.Second)
		a, second := answered[*kmsg.JoinGroupResponse](joinA), answered[*kmsg.JoinGroupResponse](backB)
		require.Len(t, a.Members, 2)
		sync := b.send(kafkatest.Sync("g", 1, second.MemberID))
		sync.requireParked()

		backB = b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"))) // while completing
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
		backB.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", 1, a.MemberID)
		_, generation := b.syncAll("g", []*sent{b.send(kafkatest.Join(9, "g", a.MemberID, kafkatest.WithInstance("a"))), backB})
		require.Equal(t, int32(2), generation)
	})
}

// A static member that does not join again keeps its slot for its session.
func TestStaticMemberIsMissingFromARound(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, leader, generation := b.staticGroup(2, kafkatest.WithSession(time.Minute))
		require.Equal(t, "a", leader)
		join := b.send(kafkatest.Join(9, "g", ids["b"], kafkatest.WithInstance("b"), kafkatest.WithSession(time.Minute), kafkatest.WithProtocols("range", "more")))
		b.pass(10*time.Second + 2*fixtureTick)
		a := answered[*kmsg.JoinGroupResponse](join)
		require.Equal(t, ids["b"], a.LeaderID, "the one that is here")
		require.Len(t, a.Members, 2, "and both are assigned partitions")
		next, _ := b.syncAll("g", []*sent{join})
		require.Equal(t, []string{ids["b"]}, next)
		b.requireHeartbeat(nil, "g", generation+1, ids["b"])
		b.pass(30 * time.Second) // longer than the time it would have to sync
		b.requireHeartbeat(nil, "g", generation+1, ids["b"])
		back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("a"), kafkatest.WithSession(time.Minute))))
		kafkatest.RequireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation+1, back.Generation)
	})
}

// No member joins again: the round waits until one does, or the sessions end.
func TestStaticMembersAreAllMissing(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.staticGroup(2, kafkatest.WithSession(25*time.Second))
		id := b.newID("g")
		b.send(kafkatest.Join(9, "g", id)).requireParked()
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", id)))
		b.pass(24 * time.Second) // two rebalance timeouts
		require.Equal(t, statePreparing, b.state("g"))
		b.pass(2 * time.Second)
		require.Zero(t, b.co.groups.Load())
	})
}

func TestStaticMemberIsRemovedByName(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(2)
		leave := kafkatest.Leave("g", "", "")
		leave.Members[0].InstanceID, leave.Members[1].InstanceID = kmsg.StringPtr("b"), kmsg.StringPtr("none")
		a := answered[*kmsg.LeaveGroupResponse](b.send(leave))
		kafkatest.RequireCode(t, nil, a.Members[0].ErrorCode)
		kafkatest.RequireCode(t, kerr.UnknownMemberID, a.Members[1].ErrorCode)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids["a"])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids["b"])
	})
}

// A full group accepts a returning static member.
func TestStaticMemberComesBackToAFullGroup(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		_, _, generation := b.staticGroup(2)
		back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"))))
		kafkatest.RequireCode(t, nil, back.ErrorCode)
		require.Equal(t, generation, back.Generation)
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("c")))).ErrorCode)
	}, func(c *Config) { c.MaxMembers = 2 })
}
