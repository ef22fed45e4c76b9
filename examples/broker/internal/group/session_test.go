package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/purgatory"
)

// A member's session lasts from its last heartbeat for its timeout: no less, and at most a tick
// more.
func TestSessionEndsInTimeAndNotEarlier(t *testing.T) {
	t.Parallel()
	const session = 3 * time.Second
	for name, alive := range map[string]func(b *fixture, generation int32, id string){
		"the answer to its sync": func(*fixture, int32, string) {},
		"a heartbeat": func(b *fixture, generation int32, id string) {
			b.requireHeartbeat(nil, "g", generation, id)
		},
		"another sync": func(b *fixture, generation int32, id string) {
			kafkatest.RequireCode(b.t, nil, answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", generation, id))).ErrorCode)
		},
		"another join": func(b *fixture, _ int32, id string) {
			kafkatest.RequireCode(b.t, nil, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", id, kafkatest.WithSession(session)))).ErrorCode)
		},
		"a commit": func(b *fixture, generation int32, id string) {
			kafkatest.RequireCode(b.t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, id, 1)))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFixture(t, func(b *fixture) {
				ids, generation := b.stableGroup("g", 2, kafkatest.WithSession(session))
				begun := time.Now()
				follower := ids[1]
				for range 3 {
					b.pass(session - time.Millisecond)
					alive(b, generation, follower)
					if name != "the answer to its sync" {
						begun = time.Now()
					}
					b.requireHeartbeat(nil, "g", generation, ids[0]) // so that this member does not expire itself
					if name == "the answer to its sync" {
						break
					}
				}
				b.pass(time.Until(begun.Add(session / 2)))
				b.requireHeartbeat(nil, "g", generation, ids[0])
				b.pass(time.Until(begun.Add(session - 1)))
				require.Equal(t, stateStable, b.state("g"), "dropped too early")
				require.Zero(t, b.co.sessions.Stats().Expired, "a heartbeat did not extend a deadline")
				require.Zero(t, b.heartbeats[purgatory.Expired].Load())
				b.pass(2 * fixtureTick)
				b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[0])
				b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, follower)
				require.Equal(t, uint64(1), b.heartbeats[purgatory.Expired].Load())
			})
		})
	}
}

// The table's deadline is extended after the group has recorded the heartbeat, and without its
// lock. A deadline that passes in between must not drop the member.
func TestSessionEndsDuringAHeartbeat(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 1, kafkatest.WithSession(time.Second))
		b.pass(900 * time.Millisecond)
		g := b.group("g")
		makeCalls := g.changeHeld(func(l *deferred) { require.Nil(t, g.heartbeatLocked(kafkatest.Heartbeat("g", generation, ids[0]), l)) })
		b.pass(500 * time.Millisecond)
		makeCalls()
		b.requireHeartbeat(nil, "g", generation, ids[0])
	})
}

// A member has a session even if the postponed calls of its join are made only after the round has
// ended.
func TestSessionBeginsDuringAJoin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		other := b.send(kafkatest.Join(9, "g", b.newID("g")))
		s := b.unhandled(kafkatest.Join(9, "g", b.newID("g"), kafkatest.WithSession(time.Second)))
		g := b.group("g")
		makeCalls := g.changeHeld(func(l *deferred) {
			g.joinLocked(newJoinRequest(&b.co.cfg, s.req.(*kmsg.JoinGroupRequest), "/192.0.2.1", s), l)
		})
		b.pass(600 * time.Millisecond)
		answered[*kmsg.JoinGroupResponse](other)
		id := answered[*kmsg.JoinGroupResponse](s).MemberID
		makeCalls()
		b.requireHeartbeat(nil, "g", 1, id)
		b.pass(time.Second + 2*fixtureTick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, id)
	})
}

// A member with a parked request cannot send heartbeats.
func TestParkedMembersAreAlive(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		short := kafkatest.WithSession(time.Second)
		silent := b.send(kafkatest.Join(3, "g", ""))
		b.pass(time.Second)
		id := answered[*kmsg.JoinGroupResponse](silent).MemberID
		kafkatest.RequireCode(t, nil, answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", 1, id))).ErrorCode)

		join := b.send(kafkatest.Join(3, "g", "", short))
		b.pass(8 * time.Second)
		join.requireParked() // the first member has 10 s left
		again := b.send(kafkatest.Join(3, "g", id))
		a := answered[*kmsg.JoinGroupResponse](join)
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		kafkatest.RequireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)

		sync := b.send(kafkatest.Sync("g", 2, a.MemberID))
		b.pass(8500 * time.Millisecond)
		sync.requireParked() // the leader has the same time to sync
		b.send(kafkatest.Sync("g", 2, id, a.MemberID))
		require.Equal(t, "for "+a.MemberID, string(answered[*kmsg.SyncGroupResponse](sync).MemberAssignment))

		// Its session began with the answer.
		b.pass(time.Second - 1)
		require.Equal(t, stateStable, b.state("g"))
		b.pass(2 * fixtureTick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 2, a.MemberID)
	})
}

// A member that has rejoined waits for another that is slow to do so.
func TestMembersThatRejoinAreAlive(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2, kafkatest.WithSession(2*time.Second))
		join := b.send(kafkatest.Join(9, "g", ids[0], kafkatest.WithSession(2*time.Second)))
		for range 8 {
			b.pass(time.Second)
			b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		}
		join.requireParked()
		b.syncAll("g", []*sent{join, b.send(kafkatest.Join(9, "g", ids[1], kafkatest.WithSession(2*time.Second)))})
	})
}

// The member's session begins with the answer to its join, and it never syncs.
func TestSessionEndsBeforeTheFirstSync(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		join := b.send(kafkatest.Join(3, "g", "", kafkatest.WithSession(time.Second)))
		b.pass(time.Second)
		id := answered[*kmsg.JoinGroupResponse](join).MemberID
		b.pass(400 * time.Millisecond)
		b.group("g")
		b.pass(time.Second)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, id)
		require.Equal(t, uint64(1), b.heartbeats[purgatory.Expired].Load())
	})
}

// The last member that a round waits for is dropped when its session ends.
func TestSessionEndsWhileARoundWaitsForIt(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.stableGroup("g", 1, kafkatest.WithSession(2*time.Second), kafkatest.WithRebalance(time.Minute))
		join := b.send(kafkatest.Join(3, "g", "", kafkatest.WithRebalance(time.Minute)))
		join.requireParked()
		b.pass(2*time.Second + 2*fixtureTick)
		a := answered[*kmsg.JoinGroupResponse](join)
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, a.MemberID, a.LeaderID)
	})
}

// A shorter session timeout in a member's next join applies from then on.
func TestSessionIsThatOfTheLatestJoin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("g", 1, kafkatest.WithSession(time.Hour/2))
		ids, generation := b.syncAll("g", []*sent{b.send(kafkatest.Join(9, "g", ids[0], kafkatest.WithSession(time.Second)))})
		b.pass(time.Second + 2*fixtureTick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
		require.Zero(t, b.co.groups.Load())
	})
}
