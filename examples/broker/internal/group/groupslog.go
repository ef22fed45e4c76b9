package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// A group's members are stored in the log together with its offsets, as in Kafka: one record has
// the generation, its members and their assignments. It is written at three times:
//
//   - When the leader has assigned the partitions. No member gets its assignment before every
//     in-sync replica has the record.
//   - When a static member's new process takes over its slot. That join, too, is answered only
//     then.
//   - When the group becomes empty.
//
// So when the coordinator moves, the next one knows each generation whose assignment a member can
// have, and the members continue unchanged: their next heartbeat finds the generation, and no
// member rejoins.
//
// A generation without an assignment is not in the log, although the answers to joins have its
// number. During a rebalance the log has the generation before, also after a compaction: the next
// coordinator knows its members, and members that came later must join again.
//
// A group is one record, and so one batch, whatever Config.MaxBatch is. If it exceeds the largest
// batch that the broker accepts (8 MiB by default), each generation ends with UNKNOWN_SERVER_ERROR
// for all syncs, and another round begins, until the group has fewer members or smaller ones. Each
// member counts with its id, its host, its metadata for the chosen protocol, and its assignment.

// groupWrite is the write of a group's record. The record is encoded at its turn in the queue, with
// the group's state at that time. So each group has at most one in the queue, whatever happens in
// between: a record can have megabytes, and is not charged to any budget.
type groupWrite struct {
	g        *group
	emptied  bool     // the group has had no members since it was last written; guarded by g.mu
	round    round    // the round whose members the record has; 0: it has none
	replaced []string // members whose take-over waits for this record
}

// writeLocked queues a write of the group's record, unless a queued one will include the change.
func (g *group) writeLocked(l *deferred) {
	if g.unwritten != nil {
		return
	}
	gw := &groupWrite{g: g}
	g.unwritten = gw
	w := &write{make: gw.records, done: gw.ended}
	g.shard.enqueue(w)
	l.do(func() { g.shard.work(w) })
}

// records encodes the record. It returns none if the group has begun another round since it was
// queued: the log keeps the last record, and no request waits for this one.
func (w *groupWrite) records() []log.Record {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwritten = nil
	switch {
	case g.state == stateStable, g.state == stateCompleting && g.storing == g.round:
	case w.emptied: // whatever the group's state is now, the members in the log have left
		return []log.Record{g.recordLocked(false)}
	default:
		return nil
	}
	w.round = g.round
	if g.state == stateStable {
		for _, m := range g.members {
			if m.join != nil {
				w.replaced = append(w.replaced, m.id)
			}
		}
	}
	return []log.Record{g.recordLocked(true)}
}

// ended is called when the log has the record, or its write has failed, or it was not made.
func (w *groupWrite) ended(_ int64, err *kerr.Error) {
	w.g.change(func(l *deferred) {
		switch g := w.g; {
		case g.round != w.round: // the group has begun another round
		case g.state == stateCompleting:
			g.storedLocked(err, l)
		case g.state == stateStable:
			g.tookOverLocked(w.replaced, err, l)
		}
	})
}

// storeLocked queues the generation whose assignment has just arrived.
func (g *group) storeLocked(l *deferred) {
	g.storing = g.round
	g.writeLocked(l)
}

// storedLocked makes the group stable, and answers the members that wait. If the log does not have
// the record, no member knows the assignment: it is void.
func (g *group) storedLocked(err *kerr.Error, l *deferred) {
	if err != nil {
		for _, m := range g.listLocked() {
			g.answerSyncLocked(m, storeError(err), l)
		}
		g.rebalanceLocked(l)
		return
	}
	g.state = stateStable
	for _, m := range g.listLocked() {
		g.answerSyncLocked(m, nil, l)
	}
}

// storeError maps an error of the log to the one that a member gets.
func storeError(err *kerr.Error) *kerr.Error {
	switch err {
	case kerr.NotLeaderForPartition:
		return kerr.NotCoordinator
	case kerr.RequestTimedOut:
		return kerr.RebalanceInProgress
	case kerr.MessageTooLarge:
		return kerr.UnknownServerError
	default: // too few replicas, most likely
		return kerr.CoordinatorNotAvailable
	}
}

// saveEmptyLocked queues a record without members. No request waits for it: if it is lost, the next
// coordinator knows members that have left, and drops them when their sessions end.
func (g *group) saveEmptyLocked(l *deferred) {
	g.writeLocked(l)
	g.unwritten.emptied = true
}

// restore fills the group from its record, as far as the record is valid. No other goroutine knows
// the group yet.
func (g *group) restore(v *kmsg.GroupMetadataValue) {
	g.generation, g.protocolType = max(v.Generation, 0), v.ProtocolType
	if v.Protocol == nil || v.Leader == nil {
		return
	}
	g.protocol = *v.Protocol
	for i := range v.Members {
		g.restoreMember(&v.Members[i])
	}
	if len(g.members) == 0 {
		g.protocol = ""
		return
	}
	g.state, g.round, g.leader = stateStable, g.co.nextRound(), *v.Leader
	if g.members[g.leader] == nil {
		g.leader = g.oldestLocked(func(*member) bool { return true }).id
	}
}

// restoreMember adds a member, unless its id is empty or taken, or its instance is taken: a member
// that is in only one of the group's maps could never be dropped.
func (g *group) restoreMember(vm *kmsg.GroupMetadataValueMember) {
	taken := vm.InstanceID != nil && g.instances[*vm.InstanceID] != nil
	if taken || vm.MemberID == "" || g.members[vm.MemberID] != nil {
		return
	}
	cfg := &g.co.cfg
	session := time.Duration(vm.SessionTimeoutMillis) * time.Millisecond
	session = min(max(session, cfg.MinSession), cfg.MaxSession)
	m := &member{
		id: vm.MemberID, instance: vm.InstanceID, arrival: g.co.arrivals.Add(1), host: vm.ClientHost,
		session:        session,
		rebalance:      cfg.rebalanceTimeout(time.Duration(vm.RebalanceTimeoutMillis)*time.Millisecond, session),
		protocols:      []memberProtocol{{g.protocol, vm.Subscription}},
		size:           memberOverhead + int64(len(vm.MemberID)+len(g.protocol)+len(vm.Subscription)),
		assignment:     vm.Assignment,
		assignmentSize: int64(len(vm.Assignment)),
		lastHeartbeat:  time.Now(), // resume sets it again: the shard may open later, or never
	}
	if vm.InstanceID != nil {
		m.size += int64(len(*vm.InstanceID))
	}
	g.co.memberBytes.used.Add(m.size + m.assignmentSize) // also beyond the limit: the broker has accepted them
	g.supported[g.protocol]++
	g.insertLocked(m)
}

// resume starts the sessions of a group that was read from the log: each member has a full session
// timeout to send a heartbeat.
func (g *group) resume() {
	g.change(func(l *deferred) {
		for _, m := range g.members {
			m.lastHeartbeat = time.Now()
			g.beginSessionLocked(m, l)
		}
	})
}
