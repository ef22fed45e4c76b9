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

func TestGroupForms(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		var joins []*sent
		for range 3 {
			joins = append(joins, b.send(kafkatest.Join(9, "g", b.newID("g"))))
			joins[len(joins)-1].requireParked()
		}
		b.pass(b.co.cfg.InitialRebalanceDelay + time.Millisecond)
		leaders := 0
		for _, s := range joins {
			a := answered[*kmsg.JoinGroupResponse](s)
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			require.Equal(t, int32(1), a.Generation)
			require.Equal(t, "range", *a.Protocol)
			require.Equal(t, "consumer", *a.ProtocolType)
			if a.LeaderID != a.MemberID {
				require.Empty(t, a.Members, "only the leader assigns")
				continue
			}
			leaders++
			require.Len(t, a.Members, 3)
			for _, m := range a.Members {
				require.Equal(t, "of range", string(m.ProtocolMetadata))
			}
		}
		require.Equal(t, 1, leaders)
		require.Equal(t, stateCompleting, b.state("g"))
		ids, generation := b.syncAll("g", joins)
		for _, id := range ids {
			b.requireHeartbeat(nil, "g", generation, id)
		}
		// All that took one delayed join, which expired after its delay, and one delayed sync,
		// which the last member's sync completed.
		require.Equal(t, uint64(1), b.co.joins.Stats().Expired)
		require.Equal(t, uint64(1), b.co.syncs.Stats().Completed)
		require.Equal(t, uint64(1), b.co.joins.Stats().Ended())
		require.Equal(t, uint64(1), b.co.syncs.Stats().Ended())
	})
}

func TestFirstJoinWaitsForOthers(t *testing.T) {
	t.Parallel()
	const delay = 500 * time.Millisecond
	for name, test := range map[string]struct {
		rebalance time.Duration
		joins     []time.Duration // arrivals of further members
		end       time.Duration   // time of the answers
	}{
		"alone":                         {10 * time.Second, nil, delay},
		"one comes at once":             {10 * time.Second, []time.Duration{0}, delay},
		"one comes":                     {10 * time.Second, []time.Duration{300 * time.Millisecond}, 300*time.Millisecond + delay},
		"they go on coming":             {10 * time.Second, []time.Duration{400 * time.Millisecond, 800 * time.Millisecond, 1200 * time.Millisecond}, 1200*time.Millisecond + delay},
		"at most the rebalance timeout": {time.Second, []time.Duration{400 * time.Millisecond, 800 * time.Millisecond}, time.Second},
		"which may be shorter":          {200 * time.Millisecond, nil, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFixture(t, func(b *fixture) {
				begun := time.Now()
				joins := []*sent{b.send(kafkatest.Join(3, "g", "", kafkatest.WithRebalance(test.rebalance)))}
				for _, at := range test.joins {
					b.pass(time.Until(begun.Add(at)))
					joins = append(joins, b.send(kafkatest.Join(3, "g", "", kafkatest.WithRebalance(test.rebalance))))
				}
				b.pass(time.Until(begun.Add(test.end - 1)))
				for _, s := range joins {
					s.requireParked()
				}
				b.pass(2 * fixtureTick)
				for _, s := range joins {
					a := answered[*kmsg.JoinGroupResponse](s)
					kafkatest.RequireCode(t, nil, a.ErrorCode)
					require.Equal(t, int32(1), a.Generation)
				}
			}, func(c *Config) { c.InitialRebalanceDelay = delay })
		})
	}
}

// All members leave before the first round ends.
func TestFirstJoinsLeave(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		id := b.newID("g")
		join := b.send(kafkatest.Join(9, "g", id))
		join.requireParked()
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", id)))
		kafkatest.RequireCode(t, kerr.UnknownMemberID, answered[*kmsg.JoinGroupResponse](join).ErrorCode)
		require.Zero(t, b.co.groups.Load())
		require.Zero(t, b.co.joins.Len())
	})
}

func TestNoDelayForTheFirstJoin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		a := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(3, "g", "")))
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, a.MemberID, a.LeaderID)
		require.Equal(t, uint64(1), b.co.joins.Stats().Completed)
	}, func(c *Config) { c.InitialRebalanceDelay = NoDelay })
}

// A new member makes the others join again. The round ends with the last join, before its timeout.
func TestRebalanceWhenAMemberComes(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		fresh := b.send(kafkatest.Join(9, "g", b.newID("g")))
		fresh.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[0])
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", generation, ids[1]))).ErrorCode)
		first := b.send(kafkatest.Join(9, "g", ids[1]))
		first.requireParked()
		fresh.requireParked()
		ended := b.co.joins.Stats().Completed
		joins := []*sent{first, fresh, b.send(kafkatest.Join(9, "g", ids[0]))}
		_, next := b.syncAll("g", joins)
		require.Equal(t, generation+1, next)
		require.Equal(t, ended+1, b.co.joins.Stats().Completed)
		b.requireHeartbeat(kerr.IllegalGeneration, "g", generation, ids[0])
	})
}

func TestRebalanceWhenAMemberLeaves(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 3)
		a := answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids[0], "stranger")))
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		kafkatest.RequireCode(t, nil, a.Members[0].ErrorCode)
		kafkatest.RequireCode(t, kerr.UnknownMemberID, a.Members[1].ErrorCode)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		joins := []*sent{b.send(kafkatest.Join(9, "g", ids[1]))}
		joins[0].requireParked()
		joins = append(joins, b.send(kafkatest.Join(9, "g", ids[2])))
		left, next := b.syncAll("g", joins)
		require.Equal(t, generation+1, next)
		require.ElementsMatch(t, ids[1:], left)
		require.Equal(t, uint64(1), b.heartbeats[purgatory.Cancelled].Load())
	})
}

// A round that waits for the last member to join must notice that it leaves instead.
func TestTheLastOneMissingLeaves(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("g", 2)
		again := b.send(kafkatest.Join(9, "g", ids[0]))
		again.requireParked()
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids[1])))
		kafkatest.RequireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)
	})
}

func TestRebalanceTimeoutDropsMembersThatDoNotJoin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		// The longest of the members' timeouts is used.
		var joins []*sent
		for range 5 {
			joins = append(joins, b.send(kafkatest.Join(9, "g", b.newID("g"), kafkatest.WithRebalance(time.Second))))
		}
		joins = append(joins, b.send(kafkatest.Join(9, "g", b.newID("g"), kafkatest.WithRebalance(4*time.Second))))
		b.pass(time.Second)
		ids, generation := b.syncAll("g", joins)
		silent := answered[*kmsg.JoinGroupResponse](joins[5]).MemberID

		var again []*sent
		for _, id := range ids {
			if id != silent {
				again = append(again, b.send(kafkatest.Join(9, "g", id, kafkatest.WithRebalance(time.Second))))
			}
		}
		b.pass(4*time.Second - 1)
		for _, s := range again {
			s.requireParked()
		}
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, silent)
		b.pass(2 * fixtureTick)
		a := answered[*kmsg.JoinGroupResponse](again[0])
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, generation+1, a.Generation)
		require.Equal(t, ids[0], a.LeaderID)
		require.Len(t, a.Members, 5)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation+1, silent)
		require.Equal(t, uint64(2), b.co.joins.Stats().Expired, "this one and the first delay")
	})
}

func TestSyncTimeoutDropsMembersThatDoNotSync(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		joins := []*sent{b.send(kafkatest.Join(3, "g", "")), b.send(kafkatest.Join(3, "g", ""))}
		b.pass(time.Second)
		leader := answered[*kmsg.JoinGroupResponse](joins[0])
		silent := answered[*kmsg.JoinGroupResponse](joins[1])
		if leader.LeaderID != leader.MemberID {
			leader, silent = silent, leader
		}
		kafkatest.RequireCode(t, nil, answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", 1, leader.MemberID))).ErrorCode)
		require.Equal(t, stateStable, b.state("g"))

		// The member sends heartbeats, but never asks for its assignment.
		b.pass(9 * time.Second)
		b.requireHeartbeat(nil, "g", 1, silent.MemberID)
		b.pass(time.Second + 2*fixtureTick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, silent.MemberID)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", 1, leader.MemberID)
		require.Equal(t, uint64(1), b.co.syncs.Stats().Expired)
	})
}

// The leader never syncs: the others, whose syncs are parked, are told to join again.
func TestSyncTimeoutOfTheLeader(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		joins := []*sent{b.send(kafkatest.Join(3, "g", "")), b.send(kafkatest.Join(3, "g", ""))}
		b.pass(time.Second)
		follower := answered[*kmsg.JoinGroupResponse](joins[0])
		if follower.LeaderID == follower.MemberID {
			follower = answered[*kmsg.JoinGroupResponse](joins[1])
		}
		parked := b.send(kafkatest.Sync("g", 1, follower.MemberID))
		parked.requireParked()
		b.pass(10 * time.Second)
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](parked).ErrorCode)
		a := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(3, "g", follower.MemberID)))
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, follower.MemberID, a.LeaderID)
	})
}

func TestSyncIsCancelledByTheNextRound(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		joins := []*sent{b.send(kafkatest.Join(3, "g", "")), b.send(kafkatest.Join(3, "g", ""))}
		b.pass(time.Second)
		follower := answered[*kmsg.JoinGroupResponse](joins[0])
		if follower.LeaderID == follower.MemberID {
			follower = answered[*kmsg.JoinGroupResponse](joins[1])
		}
		parked := b.send(kafkatest.Sync("g", 1, follower.MemberID))
		b.send(kafkatest.Join(3, "g", ""))
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](parked).ErrorCode)
		require.Equal(t, uint64(1), b.co.syncs.Stats().Cancelled)
		require.Zero(t, b.co.syncs.Len())
	})
}
