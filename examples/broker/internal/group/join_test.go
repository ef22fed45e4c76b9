package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// The answer to a repeated join depends on its changes.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 2)
		leader, follower := ids[0], ids[1]

		same := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", follower)))
		kafkatest.RequireCode(t, nil, same.ErrorCode)
		require.Equal(t, generation, same.Generation, "it has missed an answer, no more")
		require.Equal(t, leader, same.LeaderID)
		require.Equal(t, stateStable, b.state("g"))
		again := answered[*kmsg.SyncGroupResponse](b.send(kafkatest.Sync("g", generation, follower)))
		require.Equal(t, "for "+follower, string(again.MemberAssignment))

		first := b.send(kafkatest.Join(9, "g", leader)) // the leader may have seen partitions change
		first.requireParked()
		b.syncAll("g", []*sent{first, b.send(kafkatest.Join(9, "g", follower))})

		b.send(kafkatest.Join(9, "g", follower, func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("changed") }))
		synctest.Wait()
		require.Equal(t, statePreparing, b.state("g"))
	})
}

// A client gives up on a parked request and sends it again: the second one counts, and the first is
// answered, too.
func TestSecondParkedRequest(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		id := b.newID("g")
		first, second := b.send(kafkatest.Join(9, "g", id)), b.send(kafkatest.Join(9, "g", id))
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.JoinGroupResponse](first).ErrorCode)
		second.requireParked()
		other := b.send(kafkatest.Join(9, "g", b.newID("g")))
		b.pass(2 * time.Second)
		a := answered[*kmsg.JoinGroupResponse](second)
		kafkatest.RequireCode(t, nil, a.ErrorCode)
		require.Equal(t, id, a.LeaderID)
		o := answered[*kmsg.JoinGroupResponse](other)
		sync1, sync2 := b.send(kafkatest.Sync("g", 1, o.MemberID)), b.send(kafkatest.Sync("g", 1, o.MemberID))
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](sync1).ErrorCode)
		b.send(kafkatest.Sync("g", 1, id, o.MemberID))
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
			withFixture(t, func(b *fixture) {
				var s *sent
				for _, names := range test.members {
					s = b.send(kafkatest.Join(3, "g", "", kafkatest.WithProtocols(names...)))
				}
				b.pass(2 * time.Second)
				require.Equal(t, test.chosen, *answered[*kmsg.JoinGroupResponse](s).Protocol)
			})
		})
	}
}

func TestJoinIsRefused(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.stableGroup("full", 3)
		b.stableGroup("g", 1)
		for name, test := range map[string]struct {
			req  *kmsg.JoinGroupRequest
			want *kerr.Error
		}{
			"no group":            {kafkatest.Join(9, "", ""), kerr.InvalidGroupID},
			"a long group":        {kafkatest.Join(9, string(make([]byte, 256)), ""), kerr.InvalidGroupID},
			"session too short":   {kafkatest.Join(9, "g", "", kafkatest.WithSession(99*time.Millisecond)), kerr.InvalidSessionTimeout},
			"session too long":    {kafkatest.Join(9, "g", "", kafkatest.WithSession(31*time.Minute)), kerr.InvalidSessionTimeout},
			"no session":          {kafkatest.Join(9, "g", "", kafkatest.WithSession(0)), kerr.InvalidSessionTimeout},
			"unknown group":       {kafkatest.Join(9, "none", "stranger"), kerr.UnknownMemberID},
			"unknown member":      {kafkatest.Join(9, "g", "stranger"), kerr.UnknownMemberID},
			"unknown instance":    {kafkatest.Join(9, "g", "stranger", kafkatest.WithInstance("i")), kerr.UnknownMemberID},
			"no protocols":        {kafkatest.Join(9, "none", "", kafkatest.WithProtocols()), kerr.InconsistentGroupProtocol},
			"no protocol type":    {kafkatest.Join(9, "none", "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "" }), kerr.InconsistentGroupProtocol},
			"other protocols":     {kafkatest.Join(9, "g", "", kafkatest.WithProtocols("other")), kerr.InconsistentGroupProtocol},
			"other protocol type": {kafkatest.Join(9, "g", "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" }), kerr.InconsistentGroupProtocol},
			"too many members":    {kafkatest.Join(9, "full", ""), kerr.GroupMaxSizeReached},
			"of old clients, too": {kafkatest.Join(3, "full", ""), kerr.GroupMaxSizeReached},
			"static ones as well": {kafkatest.Join(9, "full", "", kafkatest.WithInstance("i")), kerr.GroupMaxSizeReached},
			"empty instance":      {kafkatest.Join(9, "g", "", kafkatest.WithInstance("")), kerr.InvalidRequest},
		} {
			a := answered[*kmsg.JoinGroupResponse](b.send(test.req))
			require.Equal(t, test.want, kerrOf(a.ErrorCode), name)
		}
		require.Equal(t, stateStable, b.state("g"))
		require.Equal(t, stateStable, b.state("full"))
		require.Equal(t, int64(2), b.co.groups.Load(), "a group without a successful join does not exist")
	}, func(c *Config) { c.MaxMembers = 3 })
}

func TestMembershipIsChecked(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 1)
		other := "other"
		protocol := func(q *kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest { q.Protocol = &other; return q }
		protocolType := func(q *kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest { q.ProtocolType = &other; return q }
		for name, test := range map[string]struct {
			req  *kmsg.SyncGroupRequest
			want *kerr.Error
		}{
			"no group":            {kafkatest.Sync("", generation, ids[0]), kerr.InvalidGroupID},
			"unknown group":       {kafkatest.Sync("none", generation, ids[0]), kerr.UnknownMemberID},
			"unknown member":      {kafkatest.Sync("g", generation, "stranger"), kerr.UnknownMemberID},
			"older generation":    {kafkatest.Sync("g", generation-1, ids[0]), kerr.IllegalGeneration},
			"newer generation":    {kafkatest.Sync("g", generation+1, ids[0]), kerr.IllegalGeneration},
			"other protocol":      {protocol(kafkatest.Sync("g", generation, ids[0])), kerr.InconsistentGroupProtocol},
			"other protocol type": {protocolType(kafkatest.Sync("g", generation, ids[0])), kerr.InconsistentGroupProtocol},
			"good":                {kafkatest.Sync("g", generation, ids[0]), nil},
		} {
			require.Equal(t, test.want, kerrOf(answered[*kmsg.SyncGroupResponse](b.send(test.req)).ErrorCode), name)
		}
		b.requireHeartbeat(kerr.InvalidGroupID, "", generation, ids[0])
		b.requireHeartbeat(kerr.UnknownMemberID, "none", generation, ids[0])
		b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, "stranger")
		b.requireHeartbeat(kerr.IllegalGeneration, "g", generation+1, ids[0])

		kafkatest.RequireCode(t, kerr.InvalidGroupID, answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("", ids[0]))).ErrorCode)
		gone := answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("none", ids[0])))
		kafkatest.RequireCode(t, kerr.UnknownMemberID, gone.Members[0].ErrorCode)
		old := kafkatest.Leave("g")
		old.Version, old.MemberID = 2, "stranger"
		kafkatest.RequireCode(t, kerr.UnknownMemberID, answered[*kmsg.LeaveGroupResponse](b.send(old)).ErrorCode)
		old = kafkatest.Leave("g")
		old.Version, old.MemberID = 2, ids[0]
		kafkatest.RequireCode(t, nil, answered[*kmsg.LeaveGroupResponse](b.send(old)).ErrorCode)
		require.Zero(t, b.co.groups.Load(), "an empty group without offsets is removed at once")
	})
}

// An id that was given out delays a round until it is used, or its session ends.
func TestPromisedMember(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("g", 1)
		b.newID("g", kafkatest.WithSession(3*time.Second))
		again := b.send(kafkatest.Join(9, "g", ids[0]))
		b.pass(3*time.Second - 1)
		again.requireParked()
		b.pass(2 * fixtureTick)
		b.syncAll("g", []*sent{again})

		// The client returns the id.
		id := b.newID("g")
		again = b.send(kafkatest.Join(9, "g", ids[0]))
		again.requireParked()
		kafkatest.RequireCode(t, nil, answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", id))).Members[0].ErrorCode)
		kafkatest.RequireCode(t, nil, answered[*kmsg.JoinGroupResponse](again).ErrorCode)

		// A group that has only such an id is removed with it.
		b.newID("nobody", kafkatest.WithSession(time.Second))
		require.Equal(t, stateEmpty, b.state("nobody"))
		b.pass(time.Second + 2*fixtureTick)
		require.Equal(t, int64(1), b.co.groups.Load())
	})
}
