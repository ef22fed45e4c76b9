package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
		b.pass(2 * time.Second)
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
				b.pass(2 * time.Second)
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
		b.pass(3*time.Second - 1)
		again.requireParked()
		b.pass(2 * b.srv.cfg.tick)
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
		b.pass(time.Second + 2*b.srv.cfg.tick)
		require.Equal(t, int64(1), b.co.groups.Load())
	})
}
