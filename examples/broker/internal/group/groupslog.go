package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// A group's members live in the log beside its offsets, as Kafka keeps them: one record,
// with the generation, its members and what is assigned to them. It is written when the
// leader has assigned the partitions, and no member is told its part before every in-sync
// replica has the record; when a static member's new process takes its place over, which is
// answered no sooner either; and when the group becomes empty. So when the coordinator moves,
// the next one knows each generation whose assignment a member can have, and the members go on
// as they were: their next heartbeat finds it, and nobody joins again.
//
// A generation that was not assigned yet is not in the log, though its number is in the joins'
// answers. Amid a rebalance the log has the generation before, also when it is compacted: its
// members are those that the next coordinator knows, and whoever came since joins anew.
//
// A group is one record, and so one batch, whatever Config.MaxBatch is. If it is larger than
// the largest batch that the broker takes (8 MiB by default), each generation ends with
// UNKNOWN_SERVER_ERROR for all that sync, and another round begins, until the group has fewer
// members, or they say less. Each counts with its id, its host, what it says for the
// protocol that was chosen, and its assignment.

// groupWrite is a group's record on its way into the log. It is made when its turn in the
// queue has come, and says what the group is then. So a group has one at most in the queue,
// whatever happens to it meanwhile: a record can have megabytes, and is charged to nobody.
type groupWrite struct {
	g       *group
	emptied bool     // the group has had no members since it was last written; guarded by g.mu
	round   round    // whose members the record has; 0: it has none
	taken   []string // members that took their places over and wait for the record to have them
}

// writeLocked has the group's record written, unless one is queued already that will do.
func (g *group) writeLocked(l *later) {
	if g.unwritten != nil {
		return
	}
	gw := &groupWrite{g: g}
	g.unwritten = gw
	w := &write{make: gw.records, done: gw.ended}
	g.shard.enqueue(w)
	l.do(func() { g.shard.work(w) })
}

// records makes the record. There is none if the group has begun another round since it was
// asked for: the log keeps the last one, and nobody waits for this.
func (w *groupWrite) records() []log.Record {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwritten = nil
	switch {
	case g.state == stateStable, g.state == stateCompleting && g.storing == g.round:
	case w.emptied: // whatever the group is by now, the members that the log has are gone
		return []log.Record{g.recordLocked(false)}
	default:
		return nil
	}
	w.round = g.round
	if g.state == stateStable {
		for _, m := range g.members {
			if m.join != nil {
				w.taken = append(w.taken, m.id)
			}
		}
	}
	return []log.Record{g.recordLocked(true)}
}

// ended is called when the log has the record, or it is known not to, or it was never made.
func (w *groupWrite) ended(_ int64, err *kerr.Error) {
	w.g.change(func(l *later) {
		switch g := w.g; {
		case g.round != w.round: // the group has gone on
		case g.state == stateCompleting:
			g.storedLocked(err, l)
		case g.state == stateStable:
			g.takenOverLocked(w.taken, err, l)
		}
	})
}

// storeLocked writes the generation whose assignment has just come.
func (g *group) storeLocked(l *later) {
	g.storing = g.round
	g.writeLocked(l)
}

// storedLocked makes the group stable, and tells the members that wait for it. If the
// record is not in the log, none of them has heard of the assignment: it is void.
func (g *group) storedLocked(err *kerr.Error, l *later) {
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

// storeError is what a member is told about an error of the log.
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

// saveEmptyLocked writes that the group has no members. Nobody waits for it: if it is lost,
// the next coordinator knows members that have gone, and drops them when their sessions end.
func (g *group) saveEmptyLocked(l *later) {
	g.writeLocked(l)
	g.unwritten.emptied = true
}

// restore makes the group what its record says, as far as a group can be that. Nobody else
// knows the group yet.
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

// restoreMember takes a member in, unless its place is not one or is taken: a member that
// the group's maps do not have in them both could never be dropped.
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
		session:    session,
		rebalance:  cfg.rebalanceTimeout(time.Duration(vm.RebalanceTimeoutMillis)*time.Millisecond, session),
		protocols:  []memberProtocol{{g.protocol, vm.Subscription}},
		size:       memberOverhead + int64(len(vm.MemberID)+len(g.protocol)+len(vm.Subscription)),
		assignment: vm.Assignment,
		room:       int64(len(vm.Assignment)),
		seenAt:     time.Now(), // resume does so again: the shard may be opened later, or never
	}
	if vm.InstanceID != nil {
		m.size += int64(len(*vm.InstanceID))
	}
	g.co.memberBytes.used.Add(m.size + m.room) // also beyond the limit: they were promised
	g.supported[g.protocol]++
	g.enterLocked(m)
}

// resume begins the sessions of a group that was read from the log: its members have as
// long as ever to be heard of.
func (g *group) resume() {
	g.change(func(l *later) {
		for _, m := range g.members {
			m.seenAt = time.Now()
			g.beginSessionLocked(m, l)
		}
	})
}
