package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// Static members have names (group.instance.id) that outlive their processes. A
// member that stops does not leave: its place is kept for its session, and is
// there for it when it is back.

// takeOverLocked gives a static member's place to a client that comes with its
// name and without an id: the member was started anew. In a stable group that
// goes on as it was, as long as the same protocol would be chosen, it gets its
// assignment back and nobody else notices, once every in-sync replica knows the new id. The
// old id is fenced at once.
func (g *group) takeOverLocked(old *member, j *joinRequest, l *later) {
	if !g.updateLocked(old, j) {
		j.refuse("", kerr.GroupMaxSizeReached, l)
		return
	}
	j.formerLeader = g.leader
	m := g.renameLocked(old, newMemberID(j.instance), l)
	if g.state != stateStable || g.voteLocked() != g.protocol {
		// While the leader assigns partitions to the old id, it must do so again.
		g.parkJoinLocked(m, j, l)
		g.changedLocked(l)
		return
	}
	g.parkJoinLocked(m, j, l)
	g.writeLocked(l)
}

// takenOverLocked answers the take-overs that a record in the log has. If it is not there, or
// may not be, the next coordinator could know the old ids and not the new ones: the joins then
// count as those of the next round, whose generation the log will have before anybody is told
// it. A member that is gone, was taken over again or is answered does not wait any more.
func (g *group) takenOverLocked(ids []string, err *kerr.Error, l *later) {
	for _, id := range ids {
		m := g.members[id]
		if m == nil || m.join == nil {
			continue
		}
		if err != nil {
			g.rebalanceLocked(l)
			return
		}
		j, resp := m.join, g.joinedLocked(m, m.join.version)
		if resp.SkipAssignment = j.version >= 9 && g.leader == m.id; !resp.SkipAssignment {
			resp.LeaderID, resp.Members = j.formerLeader, nil // not itself, or it would assign partitions that nobody hears of
		}
		m.join, m.seenAt = nil, time.Now()
		g.joined--
		g.beginSessionLocked(m, l)
		l.do(func() { j.reply.Now(resp) })
	}
}

// renameLocked makes a static member another one with the same place.
func (g *group) renameLocked(old *member, id string, l *later) *member {
	g.refuseJoinLocked(old, kerr.FencedInstanceID, l)
	g.answerSyncLocked(old, kerr.FencedInstanceID, l)
	g.endSessionLocked(old, purgatory.Cancelled, l)
	m := *old
	m.id = id
	delete(g.members, old.id)
	g.enterLocked(&m)
	if g.leader == old.id {
		g.leader = id
	}
	return &m
}
