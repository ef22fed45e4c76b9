package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

func TestDescribeGroups(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("stable", 2)
		b.commit("empty", 0, 1)
		b.send(kafkatest.Join(9, "preparing", b.newID("preparing")))
		got := answered[*kmsg.DescribeGroupsResponse](b.send(kafkatest.DescribeGroups("stable", "empty", "preparing", "none", "stable"))).Groups
		require.Len(t, got, 4, "one that is named again is answered once")
		require.Equal(t, []string{"Stable", "Empty", "PreparingRebalance", "Dead"}, []string{got[0].State, got[1].State, got[2].State, got[3].State})
		for _, g := range got {
			kafkatest.RequireCode(t, nil, g.ErrorCode)
		}
		require.Equal(t, "consumer", got[0].ProtocolType)
		require.Equal(t, "range", got[0].Protocol)
		require.Len(t, got[0].Members, 2)
		for i, m := range got[0].Members {
			require.Equal(t, ids[i], m.MemberID)
			require.Equal(t, "of range", string(m.ProtocolMetadata))
			require.Equal(t, "for "+m.MemberID, string(m.MemberAssignment))
		}
		require.Len(t, got[2].Members, 1)
		require.Empty(t, got[2].Protocol, "none is chosen yet")

		newer := kafkatest.DescribeGroups("none")
		newer.Version = 6
		kafkatest.RequireCode(t, kerr.GroupIDNotFound, answered[*kmsg.DescribeGroupsResponse](b.send(newer)).Groups[0].ErrorCode)
		b.co.Resign(0, 2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.DescribeGroupsResponse](b.send(kafkatest.DescribeGroups("stable"))).Groups[0].ErrorCode)
	})
}

func TestListGroups(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.stableGroup("stable", 1)
		b.commit("empty", 0, 1)
		list := func(q *kmsg.ListGroupsRequest) (ids []string) {
			a := answered[*kmsg.ListGroupsResponse](b.send(q))
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			for _, g := range a.Groups {
				ids = append(ids, g.Group+" "+g.GroupState+" "+g.GroupType+" "+g.ProtocolType)
			}
			return ids
		}
		require.Equal(t, []string{"empty Empty classic ", "stable Stable classic consumer"}, list(kafkatest.ListGroups()))
		require.Equal(t, []string{"stable Stable classic consumer"}, list(kafkatest.ListGroups("STABLE", "Dead")))
		require.Empty(t, list(kafkatest.ListGroups("PreparingRebalance")))
		types := kafkatest.ListGroups()
		types.TypesFilter = []string{"consumer"}
		require.Empty(t, list(types))
		types.TypesFilter = []string{"consumer", "Classic"}
		require.Len(t, list(types), 2)
	})
}

func TestDeleteGroups(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _ := b.stableGroup("stable", 1)
		b.commit("empty", 0, 1)
		b.commit("empty", 1, 2)
		promised := b.newID("promised")
		got := answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("stable", "empty", "none", "promised", "empty"))).Groups
		require.Len(t, got, 4)
		for i, want := range []*kerr.Error{kerr.NonEmptyGroup, nil, kerr.GroupIDNotFound, nil} {
			kafkatest.RequireCode(t, want, got[i].ErrorCode)
		}
		require.Equal(t, int64(1), b.co.groups.Load())
		require.Equal(t, int64(-1), b.offset("empty", 0))
		join := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "promised", promised)))
		kafkatest.RequireCode(t, kerr.UnknownMemberID, join.ErrorCode)

		// The groups stay deleted after a move.
		answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("stable", ids[0])))
		b.co.Resign(0, 2)
		b.lead(2)
		require.Zero(t, b.co.groups.Load())
	})
}

// A deletion takes effect after the commits sent before it and before later ones, although all of
// them are in flight at once.
func TestDeleteGroupsDuringCommits(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.log.held = true
		b.commit("g", 0, 1)
		deletion := b.send(kafkatest.DeleteGroups("g"))
		b.commit("g", 1, 2)
		deletion.requireParked()
		require.Equal(t, 1, b.log.waits())
		b.log.release(0, nil)
		require.Equal(t, int64(1), b.offset("g", 0), "the deletion is not replicated yet")
		require.Equal(t, 2, b.log.waits())
		b.log.release(1, nil)
		b.log.release(0, nil)
		kafkatest.RequireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		require.Equal(t, int64(-1), b.offset("g", 0))
		require.Equal(t, int64(2), b.offset("g", 1))

		// Requests that wait when the coordinator moves are answered.
		b.commit("g", 0, 1)
		deletion = b.send(kafkatest.DeleteGroups("g"))
		deletion.requireParked()
		b.co.Resign(0, 2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		b.log.release(0, kerr.NotLeaderForPartition)
	})
}

// A member joins while the tombstones are in flight.
func TestJoinDuringADeletion(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.commit("g", 0, 1)
		b.log.held = true
		deletion := b.send(kafkatest.DeleteGroups("g"))
		deletion.requireParked()
		joins := []*sent{b.send(kafkatest.Join(3, "g", ""))}
		id := b.newID("g")
		b.log.release(0, nil)
		kafkatest.RequireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		require.Equal(t, int64(-1), b.offset("g", 0))
		joins = append(joins, b.send(kafkatest.Join(9, "g", id)))
		b.pass(time.Second)
		b.log.held = false
		b.syncAll("g", joins)
	})
}

func TestGroupConfigIsValidated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"Groups.MinSession is -1ns, must be from 1ns":    {MinSession: -1},
		"Groups.MaxSession is -1ns":                      {MaxSession: -1},
		"Groups.MaxRebalance":                            {MaxRebalance: -1},
		"Groups.MaxGroups is -1, must be from 1 to":      {MaxGroups: -1},
		"Groups.MaxMembers":                              {MaxMembers: -1},
		"Groups.MaxID is 32735, must be from 1 to 32734": {MaxID: 1<<15 - 33},
		"Groups.MaxMemberBytes":                          {MaxMemberBytes: -1},
		"Groups.MaxOffsetBytes":                          {MaxOffsetBytes: -1},
		"Groups.MaxOffsetMetadata":                       {MaxOffsetMetadata: -1},
		"Groups.CommitTimeout":                           {CommitTimeout: -1},
		"Groups.OffsetsCompactBytes":                     {OffsetsCompactBytes: -1},
		"Groups.InitialRebalanceDelay is -2ns":           {InitialRebalanceDelay: -2},
		"Groups.MaxSession is 100ms, must be from 1s":    {MaxSession: 100 * time.Millisecond, MinSession: time.Second},
	} {
		_, err := c.WithDefaults()
		require.ErrorContains(t, err, name)
	}
}
