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

// syncRequest is a SyncGroup request, as far as it is needed once it is parked.
type syncRequest struct {
	reply   Reply
	version int16
}

func (co *Coordinator) syncGroup(q *kmsg.SyncGroupRequest, r Reply) {
	s := &syncRequest{r, q.Version}
	err := kerr.InvalidGroupID
	if q.Group != "" {
		err = co.onGroup(q.Group, false, func(g *group, l *later) {
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

func (s *syncRequest) answer(resp *kmsg.SyncGroupResponse, l *later) {
	l.do(func() { s.reply.Now(resp) })
}

// syncLocked takes a sync in: it is answered, or parked until the leader has
// assigned the partitions. An error has not been answered yet.
func (g *group) syncLocked(q *kmsg.SyncGroupRequest, s *syncRequest, l *later) *kerr.Error {
	if err := g.checkLocked(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	differs := func(said *string, is string) bool { return said != nil && *said != is }
	switch {
	case q.Generation != g.generation:
		return kerr.IllegalGeneration
	case differs(q.ProtocolType, g.protocolType), differs(q.Protocol, g.protocol):
		return kerr.InconsistentGroupProtocol
	case g.state == statePreparing:
		return kerr.RebalanceInProgress
	}
	m := g.members[q.MemberID]
	g.aliveLocked(m, l)
	if m.unsynced {
		m.unsynced = false
		g.unsynced--
		current := g.round
		l.do(func() { g.co.syncs.CheckAndComplete(current) })
	}
	g.answerSyncLocked(m, kerr.RebalanceInProgress, l) // one that waits already: the client has given up on it
	m.sync = s
	if g.state == stateCompleting && m.id == g.leader && g.storing != g.round {
		g.takeAssignmentLocked(q.GroupAssignment, l)
	}
	if g.state == stateStable {
		g.answerSyncLocked(m, nil, l)
	}
	return nil
}

// takeAssignmentLocked takes what the leader has assigned. The group is stable, and its
// members are told, when that is in the log.
func (g *group) takeAssignmentLocked(assignments []kmsg.SyncGroupRequestGroupAssignment, l *later) {
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

// refuseAssignmentLocked is the end of a generation whose assignment is too much
// to keep. Kafka says the same when it does not fit a record.
func (g *group) refuseAssignmentLocked(l *later) {
	for _, m := range g.listLocked() {
		g.answerSyncLocked(m, kerr.UnknownServerError, l)
	}
	g.rebalanceLocked(l)
}

// answerSyncLocked answers a parked sync, if there is one. From then on the
// member has to show that it lives.
func (g *group) answerSyncLocked(m *member, err *kerr.Error, l *later) {
	s := m.sync
	if s == nil {
		return
	}
	m.sync, m.seenAt = nil, time.Now()
	resp := newSyncResponse(s.version, err)
	if err == nil {
		resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.protocolType), kmsg.StringPtr(g.protocol)
		resp.MemberAssignment = m.assignment
	}
	s.answer(resp, l)
}

// delayedSync is a delayed operation: from the moment that a generation's
// members have their joins answered, it waits until each of them has synced, at
// most for the rebalance timeout. The members' requests are parked only until
// the leader's comes; this goes on, for a member that is heard of in heartbeats
// but never asks for its assignment would keep partitions that nobody reads.
type delayedSync struct {
	g     *group
	round round
}

func (g *group) awaitSyncsLocked(l *later) {
	d := &delayedSync{g: g, round: g.round}
	timeout := g.rebalanceTimeoutLocked()
	l.do(func() { d.watch(timeout) })
}

func (d *delayedSync) watch(timeout time.Duration) {
	_, err := d.g.co.syncs.TryCompleteElseWatch(context.Background(), d, timeout, d.round)
	if err != nil && !errors.Is(err, purgatory.ErrClosed) { // then the shutdown abandons the group
		panic(err) // the key and the operation are ours: a bug
	}
}

// overLocked reports whether the group is past the generation that this waits
// for.
func (d *delayedSync) overLocked() bool {
	return d.g.round != d.round || d.g.state != stateCompleting && d.g.state != stateStable
}

// TryComplete reports whether all have synced. A generation that is over waits
// for nothing.
func (d *delayedSync) TryComplete() bool {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.overLocked() || d.g.unsynced == 0
}

// Complete drops those who have not synced in time, and has the others join
// anew. When all have, or the next round has begun, there is nothing left to do;
// a move or a shutdown abandons the group, and answers everybody there.
func (d *delayedSync) Complete(outcome purgatory.Outcome, _ error) {
	g := d.g
	if outcome != purgatory.Expired && outcome != purgatory.Failed {
		return
	}
	g.change(func(l *later) {
		if !d.overLocked() && g.unsynced > 0 {
			g.dropUnsyncedLocked(l)
		}
	})
}

func (g *group) dropUnsyncedLocked(l *later) {
	for _, m := range g.listLocked() {
		if m.unsynced {
			g.dropLocked(m, purgatory.Cancelled, kerr.UnknownMemberID, l)
		}
	}
	g.rebalanceLocked(l)
}
