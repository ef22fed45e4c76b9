package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// Static members have names (group.instance.id) that outlive their processes. A member that stops
// does not leave: the group keeps its slot for the length of its session, for the member to come
// back to.

// takeOverLocked gives a static member's slot to a client that joins with its name and without an
// id: the member was restarted. In a stable group that would choose the same protocol again, the
// group continues unchanged: the client gets the old assignment, once every in-sync replica knows
// the new id, and the other members do not notice. The old id is fenced at once.
func (g *group) takeOverLocked(old *member, j *joinRequest, l *deferred) {
	if !g.updateLocked(old, j) {
		j.refuse("", kerr.GroupMaxSizeReached, l)
		return
	}
	j.formerLeader = g.leader
	m := g.renameLocked(old, newMemberID(j.instance), l)
	if g.state != stateStable || g.voteLocked() != g.protocol {
		// If the leader is assigning partitions to the old id, it must start over.
		g.parkJoinLocked(m, j, l)
		g.changedLocked(l)
		return
	}
	g.parkJoinLocked(m, j, l)
	g.writeLocked(l)
}

// tookOverLocked answers the take-overs that a record in the log has. If the record is not there,
// or may not be, the next coordinator could know the old ids instead of the new ones. The joins
// then count for the next round, whose generation the log has before any member learns it. A member
// that was removed, taken over again or answered no longer waits.
func (g *group) tookOverLocked(ids []string, err *kerr.Error, l *deferred) {
	for _, id := range ids {
		m := g.members[id]
		if m == nil || m.join == nil {
			continue
		}
		if err != nil {
			g.rebalanceLocked(l)
			return
		}
		j, resp := m.join, g.joinResponseLocked(m, m.join.version)
		if resp.SkipAssignment = j.version >= 9 && g.leader == m.id; !resp.SkipAssignment {
			resp.LeaderID, resp.Members = j.formerLeader, nil // not itself, or it would assign partitions that no member learns of
		}
		m.join, m.lastHeartbeat = nil, time.Now()
		g.joined--
		g.beginSessionLocked(m, l)
		l.do(func() { j.reply.Now(resp) })
	}
}

// renameLocked replaces a static member by one with another id and the same slot.
func (g *group) renameLocked(old *member, id string, l *deferred) *member {
	g.refuseJoinLocked(old, kerr.FencedInstanceID, l)
	g.answerSyncLocked(old, kerr.FencedInstanceID, l)
	g.endSessionLocked(old, purgatory.Cancelled, l)
	m := *old
	m.id = id
	delete(g.members, old.id)
	g.insertLocked(&m)
	if g.leader == old.id {
		g.leader = id
	}
	return &m
}
