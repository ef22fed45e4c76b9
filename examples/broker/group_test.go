package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

func TestGroupForms(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		var joins []*sent
		for range 3 {
			joins = append(joins, b.send(joinReq(9, "g", b.newID("g"))))
			joins[len(joins)-1].requireParked()
		}
		time.Sleep(b.co.cfg.initialRebalanceDelay + time.Millisecond)
		leaders := 0
		for _, s := range joins {
			a := answered[*kmsg.JoinGroupResponse](s)
			requireCode(t, nil, a.ErrorCode)
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
		require.Equal(t, groupCompleting, b.state("g"))
		ids, generation := b.syncAll("g", joins)
		for _, id := range ids {
			b.requireHeartbeat(nil, "g", generation, id)
		}
		// The whole of it was one delayed join, over with its delay, and one delayed
		// sync, over with the last member's.
		require.Equal(t, uint64(1), b.ended(joinOperation, purgatory.Expired))
		require.Equal(t, uint64(1), b.ended(syncOperation, purgatory.Completed))
		require.Equal(t, uint64(1), b.co.joins.Stats().Ended())
		require.Equal(t, uint64(1), b.co.syncs.Stats().Ended())
	})
}

func TestFirstJoinWaitsForOthers(t *testing.T) {
	t.Parallel()
	const delay = 500 * time.Millisecond
	for name, test := range map[string]struct {
		rebalance time.Duration
		joins     []time.Duration // when further members come
		end       time.Duration   // when all are answered
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
			inGroupBench(t, func(b *groupBench) {
				begun := time.Now()
				joins := []*sent{b.send(joinReq(3, "g", "", withRebalance(test.rebalance)))}
				for _, at := range test.joins {
					time.Sleep(time.Until(begun.Add(at)))
					joins = append(joins, b.send(joinReq(3, "g", "", withRebalance(test.rebalance))))
				}
				time.Sleep(time.Until(begun.Add(test.end - 1)))
				for _, s := range joins {
					s.requireParked()
				}
				time.Sleep(2 * b.srv.cfg.tick)
				for _, s := range joins {
					a := answered[*kmsg.JoinGroupResponse](s)
					requireCode(t, nil, a.ErrorCode)
					require.Equal(t, int32(1), a.Generation)
				}
			}, func(c *groupConfig) { c.initialRebalanceDelay = delay })
		})
	}
}

func TestNoDelayForTheFirstJoin(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		a := answered[*kmsg.JoinGroupResponse](b.send(joinReq(3, "g", "")))
		requireCode(t, nil, a.ErrorCode)
		require.Equal(t, a.MemberID, a.LeaderID)
		require.Equal(t, uint64(1), b.ended(joinOperation, purgatory.Completed))
	}, func(c *groupConfig) { c.initialRebalanceDelay = 0 })
}

// A member that comes has the others join again; the round ends with the last of
// them, not with its time.
func TestRebalanceWhenAMemberComes(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 2)
		fresh := b.send(joinReq(9, "g", b.newID("g")))
		fresh.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[0])
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		first := b.send(joinReq(9, "g", ids[1]))
		first.requireParked()
		fresh.requireParked()
		ended := b.ended(joinOperation, purgatory.Completed)
		joins := []*sent{first, fresh, b.send(joinReq(9, "g", ids[0]))}
		_, next := b.syncAll("g", joins)
		require.Equal(t, generation+1, next)
		require.Equal(t, ended+1, b.ended(joinOperation, purgatory.Completed))
		b.requireHeartbeat(kerr.IllegalGeneration, "g", generation, ids[0])
	})
}

func TestRebalanceWhenAMemberLeaves(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 3)
		a := answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("g", ids[0], "stranger")))
		requireCode(t, nil, a.ErrorCode)
		requireCode(t, nil, a.Members[0].ErrorCode)
		requireCode(t, kerr.UnknownMemberID, a.Members[1].ErrorCode)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		joins := []*sent{b.send(joinReq(9, "g", ids[1]))}
		joins[0].requireParked()
		joins = append(joins, b.send(joinReq(9, "g", ids[2])))
		left, next := b.syncAll("g", joins)
		require.Equal(t, generation+1, next)
		require.ElementsMatch(t, ids[1:], left)
		require.Equal(t, uint64(1), b.ended(heartbeatOperation, purgatory.Cancelled))
	})
}

// One that waits for the last member to join must notice that it leaves instead.
func TestTheLastOneMissingLeaves(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _ := b.stableGroup("g", 2)
		again := b.send(joinReq(9, "g", ids[0]))
		again.requireParked()
		answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("g", ids[1])))
		requireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)
	})
}

func TestRebalanceTimeoutDropsWhoDoesNotJoin(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		// The longest of the members' timeouts counts.
		short := b.send(joinReq(9, "g", b.newID("g"), withRebalance(time.Second)))
		long := b.send(joinReq(9, "g", b.newID("g"), withRebalance(4*time.Second)))
		time.Sleep(time.Second)
		ids, generation := b.syncAll("g", []*sent{short, long})

		again := b.send(joinReq(9, "g", ids[0], withRebalance(time.Second)))
		time.Sleep(4*time.Second - 1)
		again.requireParked()
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", generation, ids[1])
		time.Sleep(2 * b.srv.cfg.tick)
		a := answered[*kmsg.JoinGroupResponse](again)
		requireCode(t, nil, a.ErrorCode)
		require.Equal(t, generation+1, a.Generation)
		require.Equal(t, ids[0], a.LeaderID)
		require.Len(t, a.Members, 1)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation+1, ids[1])
		require.Equal(t, uint64(2), b.ended(joinOperation, purgatory.Expired), "this one and the first delay")
	})
}

func TestSyncTimeoutDropsWhoDoesNotSync(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		joins := []*sent{b.send(joinReq(3, "g", "")), b.send(joinReq(3, "g", ""))}
		time.Sleep(time.Second)
		leader := answered[*kmsg.JoinGroupResponse](joins[0])
		silent := answered[*kmsg.JoinGroupResponse](joins[1])
		if leader.LeaderID != leader.MemberID {
			leader, silent = silent, leader
		}
		requireCode(t, nil, answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", 1, leader.MemberID))).ErrorCode)
		require.Equal(t, groupStable, b.state("g"))

		// It heartbeats, but never asks for its assignment.
		time.Sleep(9 * time.Second)
		b.requireHeartbeat(nil, "g", 1, silent.MemberID)
		time.Sleep(time.Second + 2*b.srv.cfg.tick)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", 1, silent.MemberID)
		b.requireHeartbeat(kerr.RebalanceInProgress, "g", 1, leader.MemberID)
		require.Equal(t, uint64(1), b.ended(syncOperation, purgatory.Expired))
	})
}

// The leader never syncs: the others, whose syncs are parked, are told to join
// again.
func TestSyncTimeoutOfTheLeader(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		joins := []*sent{b.send(joinReq(3, "g", "")), b.send(joinReq(3, "g", ""))}
		time.Sleep(time.Second)
		follower := answered[*kmsg.JoinGroupResponse](joins[0])
		if follower.LeaderID == follower.MemberID {
			follower = answered[*kmsg.JoinGroupResponse](joins[1])
		}
		parked := b.send(syncReq("g", 1, follower.MemberID))
		parked.requireParked()
		time.Sleep(10 * time.Second)
		requireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](parked).ErrorCode)
		a := answered[*kmsg.JoinGroupResponse](b.send(joinReq(3, "g", follower.MemberID)))
		requireCode(t, nil, a.ErrorCode)
		require.Equal(t, follower.MemberID, a.LeaderID)
	})
}

// A new round ends the wait for the last one's syncs.
func TestSyncIsCancelledByTheNextRound(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		joins := []*sent{b.send(joinReq(3, "g", "")), b.send(joinReq(3, "g", ""))}
		time.Sleep(time.Second)
		follower := answered[*kmsg.JoinGroupResponse](joins[0])
		if follower.LeaderID == follower.MemberID {
			follower = answered[*kmsg.JoinGroupResponse](joins[1])
		}
		parked := b.send(syncReq("g", 1, follower.MemberID))
		b.send(joinReq(3, "g", ""))
		requireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](parked).ErrorCode)
		require.Equal(t, uint64(1), b.ended(syncOperation, purgatory.Cancelled))
		require.Zero(t, b.co.syncs.Delayed())
	})
}

// What a member that comes again gets depends on what is new.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 2)
		leader, follower := ids[0], ids[1]

		same := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "g", follower)))
		requireCode(t, nil, same.ErrorCode)
		require.Equal(t, generation, same.Generation, "it has missed an answer, no more")
		require.Equal(t, leader, same.LeaderID)
		require.Equal(t, groupStable, b.state("g"))
		again := answered[*kmsg.SyncGroupResponse](b.send(syncReq("g", generation, follower)))
		require.Equal(t, "for "+follower, string(again.MemberAssignment))

		first := b.send(joinReq(9, "g", leader)) // it may have seen partitions change
		first.requireParked()
		b.syncAll("g", []*sent{first, b.send(joinReq(9, "g", follower))})

		b.send(joinReq(9, "g", follower, func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("changed") }))
		synctest.Wait()
		require.Equal(t, groupPreparing, b.state("g"))
	})
}

// A client gives up on a parked request and sends it again: the second one
// counts, and the first is answered, too.
func TestSecondParkedRequest(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		id := b.newID("g")
		first, second := b.send(joinReq(9, "g", id)), b.send(joinReq(9, "g", id))
		requireCode(t, kerr.RebalanceInProgress, answered[*kmsg.JoinGroupResponse](first).ErrorCode)
		second.requireParked()
		other := b.send(joinReq(9, "g", b.newID("g")))
		time.Sleep(2 * time.Second)
		a := answered[*kmsg.JoinGroupResponse](second)
		requireCode(t, nil, a.ErrorCode)
		require.Equal(t, id, a.LeaderID)
		o := answered[*kmsg.JoinGroupResponse](other)
		sync1, sync2 := b.send(syncReq("g", 1, o.MemberID)), b.send(syncReq("g", 1, o.MemberID))
		requireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](sync1).ErrorCode)
		b.send(syncReq("g", 1, id, o.MemberID))
		require.Equal(t, "for "+o.MemberID, string(answered[*kmsg.SyncGroupResponse](sync2).MemberAssignment))
	})
}

func TestProtocolIsChosenByVote(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		members [][]string
		chosen  string
	}{
		"the only one":                 {[][]string{{"a"}}, "a"},
		"the first of one":             {[][]string{{"b", "a"}}, "b"},
		"most votes":                   {[][]string{{"a", "b"}, {"b", "a"}, {"b", "a"}}, "b"},
		"one that all know":            {[][]string{{"a", "b"}, {"c", "b"}, {"b", "a"}}, "b"},
		"their first that all know":    {[][]string{{"x", "b", "a"}, {"x", "b", "a"}, {"a", "b"}}, "b"},
		"equal votes: the first name":  {[][]string{{"b", "a"}, {"a", "b"}}, "a"},
		"a name given twice is no two": {[][]string{{"a", "a", "b"}, {"b"}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inGroupBench(t, func(b *groupBench) {
				var s *sent
				for _, names := range test.members {
					s = b.send(joinReq(3, "g", "", withProtocols(names...)))
				}
				time.Sleep(2 * time.Second)
				require.Equal(t, test.chosen, *answered[*kmsg.JoinGroupResponse](s).Protocol)
			})
		})
	}
}

func TestJoinIsRefused(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.stableGroup("full", 3)
		b.stableGroup("g", 1)
		for name, test := range map[string]struct {
			req  *kmsg.JoinGroupRequest
			want *kerr.Error
		}{
			"no group":            {joinReq(9, "", ""), kerr.InvalidGroupID},
			"a long group":        {joinReq(9, string(make([]byte, 256)), ""), kerr.InvalidGroupID},
			"session too short":   {joinReq(9, "g", "", withSession(99*time.Millisecond)), kerr.InvalidSessionTimeout},
			"session too long":    {joinReq(9, "g", "", withSession(31*time.Minute)), kerr.InvalidSessionTimeout},
			"no session":          {joinReq(9, "g", "", withSession(0)), kerr.InvalidSessionTimeout},
			"unknown group":       {joinReq(9, "none", "stranger"), kerr.UnknownMemberID},
			"unknown member":      {joinReq(9, "g", "stranger"), kerr.UnknownMemberID},
			"unknown instance":    {joinReq(9, "g", "stranger", withInstance("i")), kerr.UnknownMemberID},
			"no protocols":        {joinReq(9, "none", "", withProtocols()), kerr.InconsistentGroupProtocol},
			"no protocol type":    {joinReq(9, "none", "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "" }), kerr.InconsistentGroupProtocol},
			"other protocols":     {joinReq(9, "g", "", withProtocols("other")), kerr.InconsistentGroupProtocol},
			"other protocol type": {joinReq(9, "g", "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" }), kerr.InconsistentGroupProtocol},
			"too many members":    {joinReq(9, "full", ""), kerr.GroupMaxSizeReached},
			"of old clients, too": {joinReq(3, "full", ""), kerr.GroupMaxSizeReached},
			"static ones as well": {joinReq(9, "full", "", withInstance("i")), kerr.GroupMaxSizeReached},
			"empty instance":      {joinReq(9, "g", "", withInstance("")), kerr.InvalidRequest},
		} {
			a := answered[*kmsg.JoinGroupResponse](b.send(test.req))
			require.Equal(t, test.want, kerrOf(a.ErrorCode), name)
		}
		require.Equal(t, groupStable, b.state("g"))
		require.Equal(t, groupStable, b.state("full"))
		require.Equal(t, int64(2), b.co.groups.Load(), "a group that nobody could join is not there")
	}, func(c *groupConfig) { c.maxMembers = 3 })
}

func TestMembershipIsChecked(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 1)
		other := "other"
		protocol := func(q *kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest { q.Protocol = &other; return q }
		protocolType := func(q *kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest { q.ProtocolType = &other; return q }
		for name, test := range map[string]struct {
			req  *kmsg.SyncGroupRequest
			want *kerr.Error
		}{
			"no group":            {syncReq("", generation, ids[0]), kerr.InvalidGroupID},
			"unknown group":       {syncReq("none", generation, ids[0]), kerr.UnknownMemberID},
			"unknown member":      {syncReq("g", generation, "stranger"), kerr.UnknownMemberID},
			"older generation":    {syncReq("g", generation-1, ids[0]), kerr.IllegalGeneration},
			"newer generation":    {syncReq("g", generation+1, ids[0]), kerr.IllegalGeneration},
			"other protocol":      {protocol(syncReq("g", generation, ids[0])), kerr.InconsistentGroupProtocol},
			"other protocol type": {protocolType(syncReq("g", generation, ids[0])), kerr.InconsistentGroupProtocol},
			"good":                {syncReq("g", generation, ids[0]), nil},
		} {
			require.Equal(t, test.want, kerrOf(answered[*kmsg.SyncGroupResponse](b.send(test.req)).ErrorCode), name)
		}
		b.requireHeartbeat(kerr.InvalidGroupID, "", generation, ids[0])
		b.requireHeartbeat(kerr.UnknownMemberID, "none", generation, ids[0])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, "stranger")
		b.requireHeartbeat(kerr.IllegalGeneration, "g", generation+1, ids[0])

		requireCode(t, kerr.InvalidGroupID, answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("", ids[0]))).ErrorCode)
		gone := answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("none", ids[0])))
		requireCode(t, kerr.UnknownMemberID, gone.Members[0].ErrorCode)
		old := leaveReq("g")
		old.Version, old.MemberID = 2, "stranger"
		requireCode(t, kerr.UnknownMemberID, answered[*kmsg.LeaveGroupResponse](b.send(old)).ErrorCode)
		old = leaveReq("g")
		old.Version, old.MemberID = 2, ids[0]
		requireCode(t, nil, answered[*kmsg.LeaveGroupResponse](b.send(old)).ErrorCode)
		require.Zero(t, b.co.groups.Load(), "an empty group without offsets is removed at once")
	})
}

// An id that is given out holds a round up until it is used, or its session ends.
func TestPromisedMember(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _ := b.stableGroup("g", 1)
		b.newID("g", withSession(3*time.Second))
		again := b.send(joinReq(9, "g", ids[0]))
		time.Sleep(3*time.Second - 1)
		again.requireParked()
		time.Sleep(2 * b.srv.cfg.tick)
		b.syncAll("g", []*sent{again})

		// Given back.
		id := b.newID("g")
		again = b.send(joinReq(9, "g", ids[0]))
		again.requireParked()
		requireCode(t, nil, answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("g", id))).Members[0].ErrorCode)
		requireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)

		// A group of nothing else goes with it.
		b.newID("nobody", withSession(time.Second))
		require.Equal(t, groupEmpty, b.state("nobody"))
		time.Sleep(time.Second + 2*b.srv.cfg.tick)
		synctest.Wait()
		require.Equal(t, int64(1), b.co.groups.Load())
	})
}
