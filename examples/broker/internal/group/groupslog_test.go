package group

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// move ends this leader epoch, and begins another one, which reads the log.
func (b *fixture) move(epoch int32) {
	b.t.Helper()
	b.co.Resign(0, epoch)
	b.lead(epoch)
}

// assignment returns the assignment that a member of a stable group is sent.
func (b *fixture) assignment(group string, generation int32, id string) string {
	b.t.Helper()
	a := answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync(group, generation, id)))
	kafkatest.RequireCode(b.t, nil, a.ErrorCode)
	return string(a.MemberAssignment)
}

// The members of a stable group notice a move of the coordinator only by one error: no member
// rejoins.
func TestMoveKeepsTheMembers(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 3)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, ids[0], 7)))))
		before := answered[*kmsg.DescribeGroupsResponse](b.send(kafkatest.DescribeGroups("g")))
		for epoch := int32(2); epoch < 5; epoch++ {
			b.co.Resign(0, epoch)
			b.requireHeartbeat(kerr.NotCoordinator, "g", generation, ids[0])
			b.lead(epoch)
			require.Equal(t, stateStable, b.state("g"))
			for _, id := range ids {
				b.requireHeartbeat(nil, "g", generation, id)
				require.Equal(t, "for "+id, b.assignment("g", generation, id))
			}
			b.requireHeartbeat(kerr.IllegalGeneration, "g", generation-1, ids[0])
			b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, "stranger")
			kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, ids[1], 8)))))
			require.Equal(t, before, answered[*kmsg.DescribeGroupsResponse](b.send(kafkatest.DescribeGroups("g"))))
		}

		// A member that is silent after the move is dropped after a whole session timeout, and the
		// others continue with the next generation.
		session := b.group("g").members[ids[2]].session
		b.pass(session / 2)
		for _, id := range ids[:2] {
			b.requireHeartbeat(nil, "g", generation, id)
		}
		require.Equal(t, stateStable, b.state("g"))
		b.pass(session/2 + 2*fixtureTick)
		require.Equal(t, statePreparing, b.state("g"))
		again, next := b.syncAll("g", []*sent{b.send(kafkatest.Join(3, "g", ids[0])), b.send(kafkatest.Join(3, "g", ids[1]))})
		require.ElementsMatch(t, ids[:2], again)
		require.Equal(t, generation+1, next)
		require.Equal(t, ids[0], again[0], "the leader has stayed")
	})
}

// A leader epoch that ends while its groups are being read does not affect the sessions of the next
// one, although both have read the same members.
func TestSessionsOutliveTheLoadOfAnEarlierEpoch(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 3)
		session := b.group("g").members[ids[0]].session
		known := make(chan struct{}) // closed when the second leader epoch has ended
		b.log.await = func() bool { <-known; return false }
		b.log.lead(2)
		b.co.Lead(0, 2)
		b.pass(time.Second)
		b.log.await = nil
		b.log.lead(3)
		b.co.Lead(0, 3)
		synctest.Wait()
		require.Equal(t, 3, b.co.sessions.Len())
		close(known)
		synctest.Wait()
		require.Equal(t, 3, b.co.sessions.Len())
		b.pass(session - time.Second)
		for _, id := range ids {
			b.requireHeartbeat(nil, "g", generation, id)
		}
		b.pass(session + 2*fixtureTick)
		require.Zero(t, b.co.groups.Load(), "its members were not heard of")
	})
}

// A shard answers as soon as it is open, and its members' sessions may begin after that. Or it may
// end before it opens.
func TestHeartbeatBeforeTheSessionsBegin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		b.co.Resign(0, 2)
		s := b.shard(2)
		b.pass(time.Hour)
		groups, size := s.read(b.log.live())
		read := maps.Clone(groups)
		require.True(t, s.open(groups, size))
		b.requireHeartbeat(nil, "g", generation, ids[0])
		for _, g := range read {
			g.resume()
		}
		b.requireHeartbeat(nil, "g", generation, ids[1])
		require.Equal(t, 2, b.co.sessions.Len())

		b.co.Resign(0, 3)
		groups, _ = b.shard(3).read(b.log.live())
		for _, g := range groups { // as load does for a shard that does not open
			g.change(g.abandonLocked)
		}
	})
}

// No member gets its assignment before the log has it: the next coordinator might not know it
// otherwise.
func TestAssignmentIsReplicatedFirst(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		join := func(id string) *kmsg.JoinGroupResponse {
			s := b.send(kafkatest.Join(3, "g", id))
			b.pass(b.co.cfg.InitialRebalanceDelay + 2*time.Millisecond)
			return answered[*kmsg.JoinGroupResponse](s)
		}
		b.log.held = true
		a := join("")
		sync := b.send(kafkatest.Sync("g", a.Generation, a.MemberID, a.MemberID))
		sync.requireParked()
		b.requireHeartbeat(nil, "g", a.Generation, a.MemberID)
		retry := b.send(kafkatest.Sync("g", a.Generation, a.MemberID, a.MemberID)) // the client has given up on the first one
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
		retry.requireParked()
		require.Equal(t, 1, b.log.waits(), "it is written once")
		b.log.release(0, nil)
		require.Equal(t, "for "+a.MemberID, string(answered[*kmsg.SyncGroupResponse](retry).MemberAssignment))

		// An assignment whose write fails is void.
		for fails, told := range map[*kerr.Error]*kerr.Error{
			kerr.NotLeaderForPartition: kerr.NotCoordinator,
			kerr.RequestTimedOut:       kerr.RebalanceInProgress,
			kerr.NotEnoughReplicas:     kerr.CoordinatorNotAvailable,
			kerr.MessageTooLarge:       kerr.UnknownServerError,
		} {
			a = join(a.MemberID)
			sync = b.send(kafkatest.Sync("g", a.Generation, a.MemberID, a.MemberID))
			sync.requireParked()
			b.log.release(0, fails)
			kafkatest.RequireCode(t, told, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
			require.Equal(t, statePreparing, b.state("g"))
		}

		// A late result does not affect a group that has begun another round.
		a = join(a.MemberID)
		sync = b.send(kafkatest.Sync("g", a.Generation, a.MemberID, a.MemberID))
		b.send(kafkatest.Join(3, "g", ""))
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
		b.log.release(0, nil)
		require.Equal(t, statePreparing, b.state("g"))
		b.co.Resign(0, 2)
		for b.log.waits() > 0 {
			b.log.release(0, kerr.NotLeaderForPartition)
		}
	})
}

// A group without members has none after a move either, and its generations continue.
func TestMoveOfAnEmptyGroup(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, ids[0], 7)))))
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids...)))
		require.Equal(t, stateEmpty, b.state("g"))
		left := b.group("g").generation
		b.move(2)
		require.Equal(t, stateEmpty, b.state("g"))
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
		_, next := b.stableGroup("g", 1)
		require.Equal(t, left+1, next)

		// A group that was deleted, or has no data left, does not exist.
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", b.group("g").leader)))
		kafkatest.RequireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("g"))).Groups[0].ErrorCode)
		others, _ := b.stableGroup("h", 1)
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("h", others...)))
		b.move(3)
		require.Empty(t, answered[*kmsg.ListGroupsResponse](b.send(kafkatest.ListGroups())).Groups)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", -1, "", 1)))))
		b.move(4)
		_, anew := b.stableGroup("g", 1)
		require.Equal(t, int32(1), anew, "another group of that name")
	})
}

// During a rebalance the next coordinator knows the members of the last generation, which then join
// again.
func TestMoveDuringARebalance(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		third := b.send(kafkatest.Join(3, "g", ""))
		third.requireParked()
		b.move(2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](third).ErrorCode)
		b.requireHeartbeat(nil, "g", generation, ids[1])
		joins := []*sent{b.send(kafkatest.Join(3, "g", "")), b.send(kafkatest.Join(3, "g", ids[0])), b.send(kafkatest.Join(3, "g", ids[1]))}
		b.pass(time.Millisecond)
		all, next := b.syncAll("g", joins)
		require.Len(t, all, 3)
		require.Equal(t, generation+1, next)
	})
}

// After a take-over of a static member's slot, and after a snapshot, the next coordinator knows the
// new id.
func TestMoveAfterATakeOverAndASnapshot(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(2)
		back := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b"))))
		kafkatest.RequireCode(t, nil, back.ErrorCode)
		for epoch := int32(2); epoch < 4; epoch++ {
			b.move(epoch)
			b.requireHeartbeat(nil, "g", generation, ids["a"])
			b.requireHeartbeat(nil, "g", generation, back.MemberID)
			b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids["b"])
			require.Equal(t, "for "+ids["b"], b.assignment("g", generation, back.MemberID))
			require.Len(t, b.group("g").instances, 2)
			for n := range 200 { // enough to compact the log
				answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, back.MemberID, int64(n))))
			}
		}
		require.Less(t, len(b.log.live()), 200, "it was compacted")
	}, func(c *Config) { c.OffsetsCompactBytes = 5000 })
}

// The log may have been written with another broker's settings, or be corrupt. Timeouts are limited
// as for a join, and each slot is used once.
func TestRestoredMembersAreAsThoseThatJoin(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ofMember := func(id, instance string, session, rebalance time.Duration) kmsg.GroupMetadataValueMember {
			m := kmsg.NewGroupMetadataValueMember()
			m.MemberID, m.SessionTimeoutMillis, m.RebalanceTimeoutMillis = id, int32(session.Milliseconds()), int32(rebalance.Milliseconds())
			if instance != "" {
				m.InstanceID = &instance
			}
			return m
		}
		b.restore(groupRecord(-7,
			ofMember("", "", time.Second, time.Second),
			ofMember("a", "x", time.Second, 0),
			ofMember("a", "y", time.Hour, time.Hour),
			ofMember("b", "x", time.Hour, time.Hour),
			ofMember("c", "", 0, -1),
			ofMember("d", "", 24*time.Hour, 24*time.Hour),
		))
		g, cfg := b.group("g"), &b.co.cfg
		type timeouts struct{ session, rebalance time.Duration }
		restored := map[string]timeouts{}
		g.change(func(*deferred) {
			require.Equal(t, stateStable, g.state)
			require.Zero(t, g.generation)
			require.Equal(t, "a", g.leader, "the one that is named is none of its members")
			require.Len(t, g.instances, 1)
			for id, m := range g.members {
				restored[id] = timeouts{m.session, m.rebalance}
			}
		})
		require.Equal(t, map[string]timeouts{
			"a": {time.Second, time.Second},
			"c": {cfg.MinSession, cfg.MinSession},
			"d": {cfg.MaxSession, cfg.MaxRebalance},
		}, restored)
		b.pass(cfg.MaxSession + cfg.MaxRebalance)
		require.Zero(t, b.co.groups.Load(), "no group was loaded")
	})
}

// groupRecord is a record of group g with these members; its leader is not one of them.
func groupRecord(generation int32, members ...kmsg.GroupMetadataValueMember) (key, value []byte) {
	v := kmsg.GroupMetadataValue{Version: groupValueVersion, ProtocolType: "consumer", Generation: generation}
	v.Protocol, v.Leader, v.Members = kmsg.StringPtr("range"), kmsg.StringPtr("nobody"), members
	return encodeGroupKey("g"), v.AppendTo(nil)
}

// restore begins a leader epoch whose log has one record.
func (b *fixture) restore(key, value []byte) {
	b.t.Helper()
	b.co.Resign(0, 2)
	s := b.shard(2)
	groups, size := s.read([][]byte{log.NewBatch(time.Now(), []log.Record{{Key: key, Value: value}})})
	require.True(b.t, s.start(groups, size))
}

// The log is not trusted: malformed records are ignored. Members of a valid record are dropped if
// they send no heartbeats, and the group can then be joined.
func FuzzGroupRecord(f *testing.F) {
	m := kmsg.NewGroupMetadataValueMember()
	m.MemberID, m.InstanceID, m.Assignment = "m", kmsg.StringPtr("i"), []byte("a")
	n := m
	n.SessionTimeoutMillis = 60_000
	for _, members := range [][]kmsg.GroupMetadataValueMember{nil, {m}, {m, n}} {
		key, value := groupRecord(3, members...)
		f.Add(key, value)
	}
	f.Add(encodeGroupKey("g"), []byte(nil))
	f.Add(encodeGroupKey("g"), []byte("\x00\x04\x01....\x00\x00........\x01\xff\xff\xff\xff\x0f")) // four billion tags
	f.Add(encodeOffsetKey("g", offsetKey{"t", 1}), []byte{0, 3})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		withFixture(t, func(b *fixture) {
			b.restore(key, value)
			b.pass(b.co.cfg.MaxSession + b.co.cfg.MaxRebalance)
			require.Zero(t, b.co.sessions.Len())
			require.Zero(t, b.co.memberBytes.used.Load())
			_, generation := b.stableGroup("g", 1, kafkatest.WithSession(time.Second))
			require.Positive(t, generation)
		}, func(c *Config) { c.MaxSession, c.MaxRebalance = 10*time.Second, 10*time.Second })
	})
}

// A coordinator that has restored more than its capacity accepts its members' joins and
// assignments, unless they ask for more.
func TestRejoinAfterMoreWasRestoredThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		b.co.Resign(0, 2)
		b.co.memberBytes.limit = memberOverhead // another broker's limit was higher, or other groups use most of it
		b.lead(2)
		b.requireHeartbeat(nil, "g", generation, ids[0])
		more := func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = make([]byte, 100) }
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ids[0], more))).ErrorCode)
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(3, "g", ""))).ErrorCode)
		require.Equal(t, stateStable, b.state("g"))
		joins := []*sent{b.send(kafkatest.Join(9, "g", ids[0]))} // a leader that wants to assign again
		joins[0].requireParked()
		joins = append(joins, b.send(kafkatest.Join(9, "g", ids[1])))
		_, next := b.syncAll("g", joins)
		require.Equal(t, generation+1, next)

		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids[1])))
		answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ids[0])))
		sync := kafkatest.Sync("g", next+1, ids[0], ids[0])
		sync.GroupAssignment[0].MemberAssignment = make([]byte, 100)
		kafkatest.RequireCode(t, kerr.UnknownServerError, answered[*kmsg.SyncGroupResponse](b.send(sync)).ErrorCode)
	})
}
