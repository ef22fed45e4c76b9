package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// A member's session is an entry of Coordinator.sessions. Each heartbeat, sync, commit or join of
// the member counts as a heartbeat, and extends the entry's deadline. When the deadline passes,
// sessionExpired drops the member. A member with a parked request counts as alive: it sends nothing
// else while it waits.
//
// The table is updated with no lock held, and so in any order. That is correct for these reasons:
//
//   - A key is removed only after its group has dropped the id, and a group never adds an id again
//     that it has dropped.
//   - beginSession checks the group again.
//   - sessionExpired relies on the group's data, not on the table's deadline.
//
// A shard that ends, or that never opens, drops members that continue under the same ids in the
// shard of the next leader epoch. The group is therefore part of the key: each leader epoch has its
// own groups.
//
// Kafka's delayed heartbeat is the time from one heartbeat to the next, and the metrics count
// these: completed when the next one arrived, expired when it did not, cancelled when the member
// left or was dropped for another reason, closed when the group ended on this broker.

// sessionKey is a member, or an id that was given out, of a group in one leader epoch.
type sessionKey struct {
	g  *group
	id string
}

func (co *Coordinator) heartbeat(q *kmsg.HeartbeatRequest, r Reply) {
	var answer *kerr.Error
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *deferred) { answer = g.heartbeatLocked(q, l) })
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

func (g *group) heartbeatLocked(q *kmsg.HeartbeatRequest, l *deferred) *kerr.Error {
	if err := g.checkLocked(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	if q.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	g.recordHeartbeatLocked(g.members[q.MemberID], l)
	if g.state == statePreparing {
		return kerr.RebalanceInProgress // the member must join again
	}
	return nil
}

// recordHeartbeatLocked records a heartbeat.
func (g *group) recordHeartbeatLocked(m *member, l *deferred) {
	now := time.Now()
	g.co.OnHeartbeat(purgatory.Completed, now.Sub(m.lastHeartbeat))
	m.lastHeartbeat = now
	id, session := m.id, m.session
	l.do(func() { _ = g.co.sessions.Touch(sessionKey{g, id}, session) }) // absent: the session expires just now, and sessionExpired will see lastHeartbeat
}

// beginSessionLocked starts or restarts a session: the member has been answered, and must send
// heartbeats from now on.
func (g *group) beginSessionLocked(m *member, l *deferred) {
	id, session := m.id, m.session
	l.do(func() { g.co.beginSession(g, id, session) })
}

// beginSession is called with no lock held. So the member may have been dropped already, and its
// session removed before it existed.
func (co *Coordinator) beginSession(g *group, id string, session time.Duration) {
	if co.sessions.Set(sessionKey{g, id}, struct{}{}, session) != nil {
		return // the coordinator is shutting down
	}
	g.mu.Lock()
	_, pending := g.pending[id]
	absent := g.members[id] == nil && !pending
	g.mu.Unlock()
	if absent {
		co.sessions.Remove(sessionKey{g, id})
	}
}

// endSessionLocked ends the session of a member that was removed.
func (g *group) endSessionLocked(m *member, outcome purgatory.Outcome, l *deferred) {
	g.co.OnHeartbeat(outcome, time.Since(m.lastHeartbeat))
	g.removeSessionLocked(m.id, l)
}

// removeSessionLocked removes the session of an id that the group has dropped.
func (g *group) removeSessionLocked(id string, l *deferred) {
	l.do(func() { g.co.sessions.Remove(sessionKey{g, id}) })
}

// sessionExpired is the expiry function of the sessions.
func (co *Coordinator) sessionExpired(k sessionKey, _ struct{}) {
	var remaining time.Duration
	k.g.change(func(l *deferred) { remaining = k.g.sessionExpiredLocked(k.id, l) })
	if remaining > 0 {
		co.beginSession(k.g, k.id, remaining)
	}
}

// sessionExpiredLocked drops a member without a recent heartbeat, or returns how much longer its
// session lasts: the table's deadline may be an old one, because it is extended only after the
// group has recorded the heartbeat.
func (g *group) sessionExpiredLocked(id string, l *deferred) (remaining time.Duration) {
	if p, ok := g.pending[id]; ok {
		if remaining = p.session - time.Since(p.issuedAt); remaining > 0 {
			return remaining
		}
		g.removePendingLocked(id, l)
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
	if remaining = m.session - time.Since(m.lastHeartbeat); remaining > 0 {
		return remaining
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
		answers[i].ErrorCode = wire.Code(kerr.UnknownMemberID) // the answer for an unknown group
	}
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *deferred) { g.leaveLocked(leaving, answers, l) })
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

// leaveLocked removes members that leave. A static member does not leave by itself: an
// administrator removes it, by its instance id alone, if it will not return.
func (g *group) leaveLocked(leaving []kmsg.LeaveGroupRequestMember, answers []kmsg.LeaveGroupResponseMember, l *deferred) {
	changed := false
	for i := range leaving {
		id, instance := leaving[i].MemberID, leaving[i].InstanceID
		if instance != nil && id == "" && g.instances[*instance] != nil {
			id = g.instances[*instance].id
		}
		if _, pending := g.pending[id]; pending {
			g.removePendingLocked(id, l)
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
