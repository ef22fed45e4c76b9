package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

// The session of a member: from its last sign of life it lasts for its timeout,
// no less, and a tick more at most.
func TestSessionEndsInTimeAndNotEarlier(t *testing.T) {
	t.Parallel()
	const session = 3 * time.Second
	for name, alive := range map[string]func(b *groupBench, generation int32, id string){
		"the answer to its sync": func(*groupBench, int32, string) {},
		"a heartbeat": func(b *groupBench, generation int32, id string) {
			b.requireHeartbeat(nil, "g", generation, id)
		},
		"another sync": func(b *groupBench, generation int32, id string) {
			requireCode(b.t, nil, answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", generation, id))).ErrorCode)
		},
		"another join": func(b *groupBench, _ int32, id string) {
			requireCode(b.t, nil, answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", id, withSession(session)))).ErrorCode)
		},
		"a commit": func(b *groupBench, generation int32, id string) {
			requireCode(b.t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.send(commitReq("g", generation, id, 1)))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inGroupBench(t, func(b *groupBench) {
				ids, generation := b.stableGroup("g", 2, withSession(session))
				begun := time.Now()
				follower := ids[1]
				for range 3 {
					b.pass(session - time.Millisecond)
					alive(b, generation, follower)
					if name != "the answer to its sync" {
						begun = time.Now()
					}
					b.requireHeartbeat(nil, "g", generation, ids[0]) // who looks must not expire itself
					if name == "the answer to its sync" {
						break
					}
				}
				b.pass(time.Until(begun.Add(session / 2)))
				b.requireHeartbeat(nil, "g", generation, ids[0])
				b.pass(time.Until(begun.Add(session - 1)))
				require.Equal(t, groupStable, b.state("g"), "dropped too early")
				require.Zero(t, b.co.sessions.Stats().Expired, "a sign of life did not push a deadline out")
				require.Zero(t, b.ended(heartbeatOperation, purgatory.Expired))
				b.pass(2 * b.srv.cfg.tick)
				b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[0])
				b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, follower)
				require.Equal(t, uint64(1), b.ended(heartbeatOperation, purgatory.Expired))
			})
		})
	}
}

// The table's deadline is moved after the group has noted the sign of life, and
// without its lock. One that comes up in between must not drop the member.
func TestSessionEndsAmidAHeartbeat(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 1, withSession(time.Second))
		b.pass(900 * time.Millisecond)
		g := b.group("g")
		putOff := g.hold(func(l *later) { require.Nil(t, g.heartbeatLocked(heartbeatReq("g", generation, ids[0]), l)) })
		b.pass(500 * time.Millisecond)
		putOff()
		b.requireHeartbeat(nil, "g", generation, ids[0])
	})
}

// A member has its session also when what its join has put off is done only
// after the round has ended.
func TestSessionBeginsAmidAJoin(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		other := b.send(joinReq(9, "g", b.newID("g")))
		s := b.unhandled(joinReq(9, "g", b.newID("g"), withSession(time.Second)))
		g := b.group("g")
		putOff := g.hold(func(l *later) { g.joinLocked(newJoinRequest(s.r.conn, s.req.(*kmsg.JoinGroupRequest), s.r), l) })
		b.pass(600 * time.Millisecond)
		answered[*kmsg.JoinGroupResponse](other)
		id := answered[*kmsg.JoinGroupResponse](s).MemberID
		putOff()
		b.requireHeartbeat(nil, "g", 1, id)
		b.pass(time.Second + 2*b.srv.cfg.tick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, id)
	})
}

// Who waits here cannot say that it lives.
func TestParkedMembersAreAlive(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		short := withSession(time.Second)
		silent := b.send(joinReq(3, "g", ""))
		b.pass(time.Second)
		id := answered[*kmsg.JoinGroupResponse](silent).MemberID
		requireCode(t, nil, answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", 1, id))).ErrorCode)

		join := b.send(joinReq(3, "g", "", short))
		b.pass(8 * time.Second)
		join.requireParked() // the first one has 10 s to come
		again := b.send(joinReq(3, "g", id))
		a := answered[*kmsg.JoinGroupResponse](join)
		requireCode(t, nil, a.ErrorCode)
		requireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)

		sync := b.send(syncReq("g", 2, a.MemberID))
		b.pass(8500 * time.Millisecond)
		sync.requireParked() // the leader has as long to sync
		b.send(syncReq("g", 2, id, a.MemberID))
		require.Equal(t, "for "+a.MemberID, string(answered[*kmsg.SyncGroupResponse](sync).MemberAssignment))

		// Its session began with the answer.
		b.pass(time.Second - 1)
		require.Equal(t, groupStable, b.state("g"))
		b.pass(2 * b.srv.cfg.tick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 2, a.MemberID)
	})
}

// One that has joined again waits for another that is slow to.
func TestMembersThatRejoinAreAlive(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 2, withSession(2*time.Second))
		join := b.send(joinReq(9, "g", ids[0], withSession(2*time.Second)))
		for range 8 {
			b.pass(time.Second)
			b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		}
		join.requireParked()
		b.syncAll("g", []*sent{join, b.send(joinReq(9, "g", ids[1], withSession(2*time.Second)))})
	})
}

// Its session begins with the answer to its join, and what it does not do then is
// to sync.
func TestSessionEndsBeforeTheFirstSync(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		join := b.send(joinReq(3, "g", "", withSession(time.Second)))
		b.pass(time.Second)
		id := answered[*kmsg.JoinGroupResponse](join).MemberID
		b.pass(400 * time.Millisecond)
		b.group("g")
		b.pass(time.Second)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, id)
		require.Equal(t, uint64(1), b.ended(heartbeatOperation, purgatory.Expired))
	})
}

// A member of a round that is under way goes, and was the last one missing.
func TestSessionEndsWhileARoundWaitsForIt(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.stableGroup("g", 1, withSession(2*time.Second), withRebalance(time.Minute))
		join := b.send(joinReq(3, "g", "", withRebalance(time.Minute)))
		join.requireParked()
		b.pass(2*time.Second + 2*b.srv.cfg.tick)
		a := answered[*kmsg.JoinGroupResponse](join)
		requireCode(t, nil, a.ErrorCode)
		require.Equal(t, a.MemberID, a.LeaderID)
	})
}

// A shorter session that a member asks for with its next join holds from then on.
func TestSessionIsThatOfTheLatestJoin(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _ := b.stableGroup("g", 1, withSession(time.Hour/2))
		ids, generation := b.syncAll("g", []*sent{b.send(joinReq(9, "g", ids[0], withSession(time.Second)))})
		b.pass(time.Second + 2*b.srv.cfg.tick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
		require.Zero(t, b.co.groups.Load())
	})
}
