package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeGroups(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _ := b.stableGroup("stable", 2)
		b.commit("empty", 0, 1)
		b.send(joinReq(9, "preparing", b.newID("preparing")))
		got := answered[*kmsg.DescribeGroupsResponse](b.send(describeReq("stable", "empty", "preparing", "none", "stable"))).Groups
		require.Len(t, got, 4, "one that is named again is answered once")
		require.Equal(t, []string{"Stable", "Empty", "PreparingRebalance", "Dead"}, []string{got[0].State, got[1].State, got[2].State, got[3].State})
		for _, g := range got {
			requireCode(t, nil, g.ErrorCode)
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

		newer := describeReq("none")
		newer.Version = 6
		requireCode(t, kerr.GroupIDNotFound, answered[*kmsg.DescribeGroupsResponse](b.send(newer)).Groups[0].ErrorCode)
		b.co.resign(0, 2)
		requireCode(t, kerr.NotCoordinator, answered[*kmsg.DescribeGroupsResponse](b.send(describeReq("stable"))).Groups[0].ErrorCode)
	})
}

func TestListGroups(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.stableGroup("stable", 1)
		b.commit("empty", 0, 1)
		list := func(q *kmsg.ListGroupsRequest) (ids []string) {
			a := answered[*kmsg.ListGroupsResponse](b.send(q))
			requireCode(t, nil, a.ErrorCode)
			for _, g := range a.Groups {
				ids = append(ids, g.Group+" "+g.GroupState+" "+g.GroupType+" "+g.ProtocolType)
			}
			return ids
		}
		require.Equal(t, []string{"empty Empty classic ", "stable Stable classic consumer"}, list(listReq()))
		require.Equal(t, []string{"stable Stable classic consumer"}, list(listReq("STABLE", "Dead")))
		require.Empty(t, list(listReq("PreparingRebalance")))
		types := listReq()
		types.TypesFilter = []string{"consumer"}
		require.Empty(t, list(types))
		types.TypesFilter = []string{"consumer", "Classic"}
		require.Len(t, list(types), 2)
	})
}

func TestDeleteGroups(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, _ := b.stableGroup("stable", 1)
		b.commit("empty", 0, 1)
		b.commit("empty", 1, 2)
		promised := b.newID("promised")
		got := answered[*kmsg.DeleteGroupsResponse](b.send(deleteReq("stable", "empty", "none", "promised", "empty"))).Groups
		require.Len(t, got, 4)
		for i, want := range []*kerr.Error{kerr.NonEmptyGroup, nil, kerr.GroupIDNotFound, nil} {
			requireCode(t, want, got[i].ErrorCode)
		}
		require.Equal(t, int64(1), b.co.groups.Load())
		require.Equal(t, int64(-1), b.offset("empty", 0))
		join := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, "promised", promised)))
		requireCode(t, kerr.UnknownMemberID, join.ErrorCode)

		// They stay deleted.
		answered[*kmsg.LeaveGroupResponse](b.send(leaveReq("stable", ids[0])))
		b.co.resign(0, 2)
		b.lead(2)
		require.Zero(t, b.co.groups.Load())
	})
}

// A deletion is after the commits that were sent before it, and before those that
// come later, though all of them are on their way at once.
func TestDeleteGroupsAmidCommits(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.log.held = true
		b.commit("g", 0, 1)
		deletion := b.send(deleteReq("g"))
		b.commit("g", 1, 2)
		deletion.requireParked()
		require.Equal(t, 1, b.log.waits())
		b.log.release(0, nil)
		require.Equal(t, int64(1), b.offset("g", 0), "the deletion is not replicated yet")
		require.Equal(t, 2, b.log.waits())
		b.log.release(1, nil)
		b.log.release(0, nil)
		requireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		require.Equal(t, int64(-1), b.offset("g", 0))
		require.Equal(t, int64(2), b.offset("g", 1))

		// What waits when the coordinator moves is answered.
		b.commit("g", 0, 1)
		deletion = b.send(deleteReq("g"))
		deletion.requireParked()
		b.co.resign(0, 2)
		requireCode(t, kerr.NotCoordinator, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		b.log.release(0, kerr.NotLeaderForPartition)
	})
}

// Somebody joins while the tombstones are on their way.
func TestJoinAmidADeletion(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.commit("g", 0, 1)
		b.log.held = true
		deletion := b.send(deleteReq("g"))
		deletion.requireParked()
		joins := []*sent{b.send(joinReq(3, "g", ""))}
		id := b.newID("g")
		b.log.release(0, nil)
		requireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](deletion).Groups[0].ErrorCode)
		require.Equal(t, int64(-1), b.offset("g", 0))
		joins = append(joins, b.send(joinReq(9, "g", id)))
		b.pass(time.Second)
		b.syncAll("g", joins)
	})
}

func TestGroupConfigIsValidated(t *testing.T) {
	t.Parallel()
	good := defaultGroupConfig()
	require.NoError(t, good.validate())
	for name, change := range map[string]func(*groupConfig){
		"min session":                    func(c *groupConfig) { c.minSession = 0 },
		"max session":                    func(c *groupConfig) { c.maxSession = -1 },
		"max rebalance":                  func(c *groupConfig) { c.maxRebalance = 0 },
		"max groups":                     func(c *groupConfig) { c.maxGroups = 0 },
		"max members":                    func(c *groupConfig) { c.maxMembers = 0 },
		"max id":                         func(c *groupConfig) { c.maxID = 0 },
		"max member bytes":               func(c *groupConfig) { c.maxMemberBytes = 0 },
		"max offset bytes":               func(c *groupConfig) { c.maxOffsetBytes = 0 },
		"max offset metadata":            func(c *groupConfig) { c.maxOffsetMetadata = 0 },
		"commit timeout":                 func(c *groupConfig) { c.commitTimeout = 0 },
		"offsets compact bytes":          func(c *groupConfig) { c.offsetsCompactBytes = 0 },
		"initial rebalance delay":        func(c *groupConfig) { c.initialRebalanceDelay = -1 },
		"is more than max session 100ms": func(c *groupConfig) { c.maxSession = 100 * time.Millisecond; c.minSession = time.Second },
	} {
		c := defaultGroupConfig()
		change(&c)
		require.ErrorContains(t, c.validate(), name)
	}
}
