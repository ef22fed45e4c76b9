package group

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// syncRequest holds the fields of a SyncGroup request that are needed while it is parked.
type syncRequest struct {
	reply   Reply
	version int16
}

func (co *Coordinator) syncGroup(q *kmsg.SyncGroupRequest, r Reply) {
	s := &syncRequest{r, q.Version}
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *deferred) {
			if err := g.syncLocked(q, s, l); err != nil {
				s.answer(newSyncResponse(s.version, err), l)
			}
		})
	}
	if err == kerr.GroupIDNotFound {
		err = kerr.UnknownMemberID
	}
	if err != nil {
		r.Now(newSyncResponse(s.version, err))
	}
}

func newSyncResponse(version int16, err *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version, resp.ErrorCode = version, wire.Code(err)
	return resp
}

func (s *syncRequest) answer(resp *kmsg.SyncGroupResponse, l *deferred) {
	l.do(func() { s.reply.Now(resp) })
}

// syncLocked handles a sync: it answers it, or parks it until the leader has assigned the
// partitions. If syncLocked returns an error, the caller must answer.
func (g *group) syncLocked(q *kmsg.SyncGroupRequest, s *syncRequest, l *deferred) *kerr.Error {
	if err := g.checkLocked(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	differs := func(given *string, is string) bool { return given != nil && *given != is }
	switch {
	case q.Generation != g.generation:
		return kerr.IllegalGeneration
	case differs(q.ProtocolType, g.protocolType), differs(q.Protocol, g.protocol):
		return kerr.InconsistentGroupProtocol
	case g.state == statePreparing:
		return kerr.RebalanceInProgress
	}
	m := g.members[q.MemberID]
	g.recordHeartbeatLocked(m, l)
	if m.pendingSync {
		m.pendingSync = false
		g.pendingSyncs--
		current := g.round
		l.do(func() { g.co.syncs.CheckAndComplete(current) })
	}
	g.answerSyncLocked(m, kerr.RebalanceInProgress, l) // an older parked sync: the client has given up on it
	m.sync = s
	if g.state == stateCompleting && m.id == g.leader && g.storing != g.round {
		g.takeAssignmentLocked(q.GroupAssignment, l)
	}
	if g.state == stateStable {
		g.answerSyncLocked(m, nil, l)
	}
	return nil
}

// takeAssignmentLocked stores the leader's assignment. The group becomes stable, and its members
// get their assignments, when the log has it.
func (g *group) takeAssignmentLocked(assignments []kmsg.SyncGroupRequestGroupAssignment, l *deferred) {
	assigned := make(map[string][]byte, len(assignments))
	for i := range assignments {
		assigned[assignments[i].MemberID] = assignments[i].MemberAssignment
	}
	if !g.assignLocked(assigned) {
		g.refuseAssignmentLocked(l)
		return
	}
	g.storeLocked(l)
}

// refuseAssignmentLocked ends a generation whose assignment exceeds the capacity. Kafka returns the
// same error for an assignment that does not fit into a record.
func (g *group) refuseAssignmentLocked(l *deferred) {
	for _, m := range g.listLocked() {
		g.answerSyncLocked(m, kerr.UnknownServerError, l)
	}
	g.rebalanceLocked(l)
}

// answerSyncLocked answers a parked sync, if there is one. From then on the member must send
// heartbeats.
func (g *group) answerSyncLocked(m *member, err *kerr.Error, l *deferred) {
	s := m.sync
	if s == nil {
		return
	}
	m.sync, m.lastHeartbeat = nil, time.Now()
	resp := newSyncResponse(s.version, err)
	if err == nil {
		resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.protocolType), kmsg.StringPtr(g.protocol)
		resp.MemberAssignment = m.assignment
	}
	s.answer(resp, l)
}

// delayedSync is a delayed operation: it starts when the joins of a generation are answered, and
// waits until each member has synced, at most for the rebalance timeout. The members' requests are
// parked only until the leader's arrives, but this operation continues: a member that sends
// heartbeats but never asks for its assignment would otherwise keep partitions that no client
// reads.
type delayedSync struct {
	g     *group
	round round
}

func (g *group) awaitSyncsLocked(l *deferred) {
	d := &delayedSync{g: g, round: g.round}
	timeout := g.rebalanceTimeoutLocked()
	l.do(func() { d.watch(timeout) })
}

func (d *delayedSync) watch(timeout time.Duration) {
	_, err := d.g.co.syncs.TryCompleteElseWatch(context.Background(), d, timeout, d.round)
	if err != nil && !errors.Is(err, purgatory.ErrClosed) { // if closed, the shutdown abandons the group
		panic(err) // a bug: this package makes the key and the operation
	}
}

// endedLocked reports whether the group is past the generation of this operation.
func (d *delayedSync) endedLocked() bool {
	return d.g.round != d.round || d.g.state != stateCompleting && d.g.state != stateStable
}

// TryComplete reports whether all members have synced, or the generation has ended.
func (d *delayedSync) TryComplete() bool {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.endedLocked() || d.g.pendingSyncs == 0
}

// Complete drops the members that have not synced in time, and makes the others join again. If all
// have synced, or the next round has begun, there is nothing to do. A move or a shutdown abandons
// the group, and answers all its members.
func (d *delayedSync) Complete(outcome purgatory.Outcome, _ error) {
	g := d.g
	if outcome != purgatory.Expired && outcome != purgatory.Failed {
		return
	}
	g.change(func(l *deferred) {
		if !d.endedLocked() && g.pendingSyncs > 0 {
			g.dropPendingSyncsLocked(l)
		}
	})
}

func (g *group) dropPendingSyncsLocked(l *deferred) {
	for _, m := range g.listLocked() {
		if m.pendingSync {
			g.dropLocked(m, purgatory.Cancelled, kerr.UnknownMemberID, l)
		}
	}
	g.rebalanceLocked(l)
}
