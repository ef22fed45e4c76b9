package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// A member's session is an entry of coordinator.sessions, whose deadline each
// sign of life pushes out: a heartbeat, a sync, a commit, a join. When it comes
// up, sessionEnded drops the member. A member with something parked here lives:
// it cannot say more than that it waits.
//
// The table is told of all this with no lock held, and so in any order. That is
// right because a key is taken out of it only once its group has dropped the id, and
// no group takes in again an id that it has dropped; because beginSession checks once more;
// and because sessionEnded goes by what the group knows and not by the table's deadline.
// A shard that ends, or that is never opened, drops members which live on in the next
// reign's shard under the same ids. So the group is part of the key: each reign has its own.
//
// What Kafka calls a delayed heartbeat is the time from one sign of life to the
// next, and that is what is counted: completed when it came, expired when it did
// not, cancelled when the member left or was dropped for another reason, closed
// when the group ended here.

// sessionKey is a member, or an id that was given out, of a group of one reign.
type sessionKey struct {
	g  *group
	id string
}

func (co *Coordinator) heartbeat(q *kmsg.HeartbeatRequest, r Reply) {
	var answer *kerr.Error
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *later) { answer = g.heartbeatLocked(q, l) })
	}
	switch err {
	case nil:
		err = answer
	case kerr.GroupIDNotFound:
		err = kerr.UnknownMemberID
	}
	resp := q.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = wire.Code(err)
	r.Now(resp)
}

func (g *group) heartbeatLocked(q *kmsg.HeartbeatRequest, l *later) *kerr.Error {
	if err := g.checkLocked(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	if q.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	g.aliveLocked(g.members[q.MemberID], l)
	if g.state == statePreparing {
		return kerr.RebalanceInProgress // it is to join again
	}
	return nil
}

// aliveLocked notes a sign of life.
func (g *group) aliveLocked(m *member, l *later) {
	now := time.Now()
	g.co.OnHeartbeat(purgatory.Completed, now.Sub(m.seenAt))
	m.seenAt = now
	id, session := m.id, m.session
	l.do(func() { _ = g.co.sessions.Touch(sessionKey{g, id}, session) }) // absent: it comes up just now, and sessionEnded sees seenAt
}

// beginSessionLocked starts a session, or starts it again: the member has been
// answered, and is to be heard of from now on.
func (g *group) beginSessionLocked(m *member, l *later) {
	id, session := m.id, m.session
	l.do(func() { g.co.beginSession(g, id, session) })
}

// beginSession is called with no lock held, and so the member may have gone in
// the meantime, and its session been removed before there was one.
func (co *Coordinator) beginSession(g *group, id string, session time.Duration) {
	if co.sessions.Set(sessionKey{g, id}, struct{}{}, session) != nil {
		return // the coordinator shuts down
	}
	g.mu.Lock()
	_, promised := g.promised[id]
	gone := g.members[id] == nil && !promised
	g.mu.Unlock()
	if gone {
		co.sessions.Remove(sessionKey{g, id})
	}
}

// endSessionLocked ends the session of a member that has been taken out.
func (g *group) endSessionLocked(m *member, outcome purgatory.Outcome, l *later) {
	g.co.OnHeartbeat(outcome, time.Since(m.seenAt))
	g.removeSessionLocked(m.id, l)
}

// removeSessionLocked has an id's session removed that the group has dropped.
func (g *group) removeSessionLocked(id string, l *later) {
	l.do(func() { g.co.sessions.Remove(sessionKey{g, id}) })
}

// sessionEnded is the expiry function of the sessions.
func (co *Coordinator) sessionEnded(k sessionKey, _ struct{}) {
	var left time.Duration
	k.g.change(func(l *later) { left = k.g.sessionEndedLocked(k.id, l) })
	if left > 0 {
		co.beginSession(k.g, k.id, left)
	}
}

// sessionEndedLocked drops a member that was not heard of, or returns how much
// longer it has: the table's deadline may be an older one, as it is pushed out
// only after the group has seen the sign of life.
func (g *group) sessionEndedLocked(id string, l *later) (left time.Duration) {
	if p, ok := g.promised[id]; ok {
		if left = p.session - time.Since(p.givenAt); left > 0 {
			return left
		}
		g.breakPromiseLocked(id, l)
		if g.state == statePreparing {
			g.changedLocked(l) // the round may have been waiting for it
		}
		return 0
	}
	m := g.members[id]
	if m == nil {
		return 0
	}
	if m.join != nil || m.sync != nil {
		return m.session
	}
	if left = m.session - time.Since(m.seenAt); left > 0 {
		return left
	}
	g.dropLocked(m, purgatory.Expired, kerr.UnknownMemberID, l)
	g.changedLocked(l)
	return 0
}

func (co *Coordinator) leaveGroup(q *kmsg.LeaveGroupRequest, r Reply) {
	resp := q.ResponseKind().(*kmsg.LeaveGroupResponse)
	leaving := q.Members
	if q.Version < 3 {
		only := kmsg.NewLeaveGroupRequestMember()
		only.MemberID = q.MemberID
		leaving = []kmsg.LeaveGroupRequestMember{only}
	}
	answers := make([]kmsg.LeaveGroupResponseMember, len(leaving))
	for i := range leaving {
		answers[i].Default()
		answers[i].MemberID, answers[i].InstanceID = leaving[i].MemberID, leaving[i].InstanceID
		answers[i].ErrorCode = wire.Code(kerr.UnknownMemberID) // of a group that nobody knows
	}
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *later) { g.leaveLocked(leaving, answers, l) })
	}
	switch {
	case err != nil && err != kerr.GroupIDNotFound:
		resp.ErrorCode = wire.Code(err)
	case q.Version < 3:
		resp.ErrorCode = answers[0].ErrorCode
	default:
		resp.Members = answers
	}
	r.Now(resp)
}

// leaveLocked takes members out that say they go. A static one does not say so:
// somebody else does, by its name alone, when it is not to come back.
func (g *group) leaveLocked(leaving []kmsg.LeaveGroupRequestMember, answers []kmsg.LeaveGroupResponseMember, l *later) {
	changed := false
	for i := range leaving {
		id, instance := leaving[i].MemberID, leaving[i].InstanceID
		if instance != nil && id == "" && g.instances[*instance] != nil {
			id = g.instances[*instance].id
		}
		if _, promised := g.promised[id]; promised {
			g.breakPromiseLocked(id, l)
			answers[i].ErrorCode = 0
			changed = changed || g.state == statePreparing
			continue
		}
		err := g.checkLocked(id, instance)
		answers[i].ErrorCode = wire.Code(err)
		if err == nil {
			g.dropLocked(g.members[id], purgatory.Cancelled, kerr.UnknownMemberID, l)
			changed = true
		}
	}
	if changed {
		g.changedLocked(l)
	}
}
