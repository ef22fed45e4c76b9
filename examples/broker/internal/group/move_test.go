package group

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/purgatory"
)

// When the coordinator moves, parked requests are answered at once, not at their timeouts.
// (KAFKA-2960 and 9198 are cases where Kafka did not do that for other operations.)
func TestMoveAnswersParkedMembers(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		joining := []*sent{b.send(kafkatest.Join(3, "joining", "")), b.send(kafkatest.Join(3, "joining", ""))}
		first, second := b.send(kafkatest.Join(3, "syncing", "")), b.send(kafkatest.Join(3, "syncing", ""))
		b.pass(2 * time.Second)
		ids := []string{answered[*kmsg.JoinGroupResponse](first).MemberID, answered[*kmsg.JoinGroupResponse](second).MemberID}
		require.Equal(t, ids[0], answered[*kmsg.JoinGroupResponse](first).LeaderID)
		joined, _ := b.syncAll("joining", joining)
		rejoin := b.send(kafkatest.Join(3, "joining", joined[0]))
		fresh := b.send(kafkatest.Join(3, "new", ""))
		syncing := b.send(kafkatest.Sync("syncing", 1, ids[1]))
		for _, s := range []*sent{rejoin, fresh, syncing} {
			s.requireParked()
		}

		moved := time.Now()
		b.co.Resign(0, 2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](rejoin).ErrorCode)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](fresh).ErrorCode)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.SyncGroupResponse](syncing).ErrorCode)
		require.Equal(t, moved, time.Now(), "at once")
		b.requireHeartbeat(kerr.NotCoordinator, "syncing", 1, ids[0])
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ""))).ErrorCode)
		kafkatest.RequireCode(t, kerr.NotCoordinator, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", -1, "", 1)))))
		require.Equal(t, uint64(2), b.co.joins.Stats().Cancelled)
		require.Equal(t, uint64(1), b.co.syncs.Stats().Cancelled)
		require.Equal(t, uint64(5), b.heartbeats[purgatory.Closed].Load())
		b.requireEmpty()
	})
}

func TestShutdownAnswersParkedMembers(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		first, second := b.send(kafkatest.Join(3, "syncing", "")), b.send(kafkatest.Join(3, "syncing", ""))
		b.pass(2 * time.Second)
		leader, follower := answered[*kmsg.JoinGroupResponse](first), answered[*kmsg.JoinGroupResponse](second)
		require.Equal(t, leader.MemberID, leader.LeaderID)
		joining := b.send(kafkatest.Join(3, "joining", ""))
		syncing := b.send(kafkatest.Sync("syncing", 1, follower.MemberID))
		syncing.requireParked()
		b.shutdown()
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](joining).ErrorCode)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.SyncGroupResponse](syncing).ErrorCode)
		require.Equal(t, uint64(1), b.co.joins.Stats().Closed)
		require.Equal(t, uint64(1), b.co.syncs.Stats().Closed)
		require.Equal(t, uint64(3), b.heartbeats[purgatory.Closed].Load())
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ""))).ErrorCode)
	})
}

// An operation may be passed to its purgatory after its group has begun another round or has moved
// away, because those calls are made without the group's lock.
func TestLateWatch(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		join := b.send(kafkatest.Join(9, "g", b.newID("g")))
		join.requireParked()
		g, now := b.group("g"), time.Now()
		(&delayedJoin{g: g, round: g.round - 1, initial: true, start: now}).watch(time.Hour)
		(&delayedSync{g: g, round: g.round}).watch(time.Hour)
		require.Equal(t, 1, b.co.joins.Len())
		require.Zero(t, b.co.syncs.Len())
		join.requireParked()

		b.pass(time.Second)
		answered[*kmsg.JoinGroupResponse](join) // the member has not synced
		(&delayedJoin{g: g, round: g.round, start: now}).watch(time.Hour)
		(&delayedSync{g: g, round: g.round - 1}).watch(time.Hour)
		require.Zero(t, b.co.joins.Len())
		require.Equal(t, 1, b.co.syncs.Len())

		b.co.Resign(0, 2)
		(&delayedJoin{g: g, round: g.round, start: now}).watch(time.Hour)
		(&delayedSync{g: g, round: g.round}).watch(time.Hour)
		require.Zero(t, b.co.joins.Len()+b.co.syncs.Len())
	})
}

// A session that begins after its member was removed is not left behind.
func TestLateSession(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("g", 2)
		g := b.group("g")
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids[1])))
		b.co.beginSession(g, ids[1], time.Hour)
		require.Equal(t, 1, b.co.sessions.Len())
	})
}

// While the shard is being read, clients are asked to retry.
func TestLoading(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.co.Resign(0, -1) // the topic was deleted
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ""))).ErrorCode)
		s := b.shard(2)
		loading := kerr.CoordinatorLoadInProgress
		kafkatest.RequireCode(t, loading, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ""))).ErrorCode)
		kafkatest.RequireCode(t, loading, answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", 1, "m"))).ErrorCode)
		b.requireHeartbeat(loading, "g", 1, "m")
		kafkatest.RequireCode(t, loading, answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", "m"))).ErrorCode)
		kafkatest.RequireCode(t, loading, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", -1, "", 1)))))
		kafkatest.RequireCode(t, loading, answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(7, "g"))).ErrorCode)
		kafkatest.RequireCode(t, loading, answered[*kmsg.DescribeGroupsResponse](b.send(kafkatest.DescribeGroups("g"))).Groups[0].ErrorCode)
		kafkatest.RequireCode(t, loading, answered[*kmsg.ListGroupsResponse](b.send(kafkatest.ListGroups())).ErrorCode)
		kafkatest.RequireCode(t, loading, answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("g"))).Groups[0].ErrorCode)

		require.True(t, s.open(map[string]*group{}, 0))
		b.newID("g")
		b.co.Resign(0, 2) // an older leader epoch
		b.newID("g")
		b.co.Resign(0, 3)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ""))).ErrorCode)
	})
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		for i := range 3 {
			b.newID(fmt.Sprint(i), kafkatest.WithSession(time.Second))
		}
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "3", ""))).ErrorCode)
		kafkatest.RequireCode(t, kerr.InvalidCommitOffsetSize, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("3", -1, "", 1)))))
		b.pass(time.Second + 2*fixtureTick)
		b.newID("3")
	}, func(c *Config) { c.MaxGroups = 3 })
}

func TestMemberBytesAreBounded(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		large := func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = make([]byte, 3000) }
		id := b.newID("g")
		other := b.newID("g")
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", id, large))).ErrorCode)
		join := b.send(kafkatest.Join(9, "g", other))
		b.pass(time.Second)
		a := answered[*kmsg.JoinGroupResponse](join)
		kafkatest.RequireCode(t, nil, a.ErrorCode)

		// An assignment that exceeds the capacity ends the generation.
		sync := kafkatest.Sync("g", 1, other, other)
		sync.GroupAssignment[0].MemberAssignment = make([]byte, 3000)
		kafkatest.RequireCode(t, kerr.UnknownServerError, answered[*kmsg.SyncGroupResponse](b.send(sync)).ErrorCode)
		require.Equal(t, statePreparing, b.state("g"))
		b.syncAll("g", []*sent{b.send(kafkatest.Join(9, "g", other))})

		for range 3 {
			b.send(kafkatest.Join(9, "h", ""))
		}
		kafkatest.RequireCode(t, kerr.GroupMaxSizeReached, answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "h", ""))).ErrorCode)
	}, func(c *Config) {
		c.MaxMemberBytes = 5 * memberOverhead
		c.InitialRebalanceDelay = time.Millisecond
	})
}

// Members of a few groups join, leave and are late, while the coordinator moves away and back.
// Requests parked in one group are completed by the goroutines of other groups' requests, of the
// wheel and of the move; a lock held during one of those calls would deadlock here (KAFKA-5970,
// 6042). Every request is answered once: sent.Answer panics on a second answer, and the fixture
// checks that each has one.
func TestGroupsUnderContention(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(c *Config) {
		c.InitialRebalanceDelay, c.MinSession = time.Millisecond, 5*time.Millisecond
		c.OffsetsCompactBytes = 10_000
	})
	b.log.async = true
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range 60 {
				b.behave(rng, fmt.Sprintf("group-%d", rng.IntN(3)), fmt.Sprintf("%d-%d", i, n))
			}
		})
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for epoch := int32(2); ; epoch++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			b.co.Resign(0, epoch)
			b.log.waitForCalls()
			b.lead(epoch)
		}
	}()
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(kafkatest.WaitLimit):
		t.Fatal("a standstill")
	}
	close(stop)
	<-moved
	b.log.waitForCalls()
	ctx := kafkatest.Context(t)
	require.NoError(t, b.co.Shutdown(ctx))
	for _, s := range b.all {
		require.NotNil(t, s.answer(), "%T is not answered", s.req)
	}
	require.Zero(t, b.co.groups.Load())
	require.Zero(t, b.co.memberBytes.used.Load())
	require.Zero(t, b.co.offsetBytes.used.Load())
	require.Zero(t, b.panics.Load())
	for _, st := range b.co.Stats() {
		require.Zero(t, st.Pending+st.Watched+st.Keys)
	}
}

// behave simulates a client: it joins, syncs, commits, stays for a while and leaves, or omits one
// of these.
func (b *fixture) behave(rng *rand.Rand, group, name string) {
	ms := func(n int) time.Duration { return time.Duration(5+rng.IntN(n)) * time.Millisecond }
	join := kafkatest.Join(int16(rng.IntN(2)*6+3), group, "", kafkatest.WithSession(ms(20)), kafkatest.WithRebalance(ms(20)))
	if rng.IntN(4) == 0 {
		join.Version, join.InstanceID = 9, kmsg.StringPtr(name[:strings.IndexByte(name, '-')])
	}
	joined := await(b.send(join)).(*kmsg.JoinGroupResponse)
	if kerrOf(joined.ErrorCode) == kerr.MemberIDRequired {
		join.MemberID = joined.MemberID
		joined = await(b.send(join)).(*kmsg.JoinGroupResponse)
	}
	if joined.ErrorCode != 0 {
		return
	}
	var ids []string
	for _, m := range joined.Members {
		ids = append(ids, m.MemberID)
	}
	if rng.IntN(8) > 0 {
		await(b.send(kafkatest.Sync(group, joined.Generation, joined.MemberID, ids...)))
	}
	for range rng.IntN(4) {
		await(b.send(kafkatest.Heartbeat(group, joined.Generation, joined.MemberID)))
		await(b.send(kafkatest.Commit(group, joined.Generation, joined.MemberID, rng.Int64N(1000))))
		await(b.send(kafkatest.OffsetFetch(8, group)))
		await(b.send(kafkatest.DescribeGroups(group)))
	}
	switch rng.IntN(3) {
	case 0:
		await(b.send(kafkatest.Leave(group, joined.MemberID)))
	case 1:
		await(b.send(kafkatest.DeleteGroups(group)))
	}
}

// await blocks until a request is answered.
func await(s *sent) kmsg.Response {
	for {
		if a := s.answer(); a != nil {
			return a
		}
		select {
		case <-s.answered:
		case <-time.After(kafkatest.WaitLimit):
			panic(fmt.Sprintf("%T is not answered", s.req))
		}
	}
}
