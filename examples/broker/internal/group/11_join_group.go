package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// joinRequest holds the fields of a JoinGroup request that are needed while it is parked.
type joinRequest struct {
	reply        Reply
	version      int16
	memberID     string
	instance     *string
	host         string
	session      time.Duration
	rebalance    time.Duration
	protocolType string
	protocols    []memberProtocol
	size         int64  // charge for a member with this request
	formerLeader string // for a take-over: the leader before it
}

func (co *Coordinator) joinGroup(q *kmsg.JoinGroupRequest, host string, r Reply) {
	j := newJoinRequest(&co.cfg, q, host, r)
	err := j.check(&co.cfg)
	if q.Group == "" {
		err = kerr.InvalidGroupID
	}
	if err == nil {
		// Only a client without an id may create a group: an id that the group does not know
		// belongs to a member that was dropped.
		err = co.onGroup(q.Group, j.memberID == "", func(g *group, l *deferred) { g.joinLocked(j, l) })
	}
	if err == kerr.GroupIDNotFound {
		err = kerr.UnknownMemberID
	}
	if err != nil {
		r.Now(j.refusal(j.memberID, err))
	}
}

func newJoinRequest(cfg *Config, q *kmsg.JoinGroupRequest, host string, r Reply) *joinRequest {
	j := &joinRequest{
		reply:        r,
		version:      q.Version,
		memberID:     q.MemberID,
		instance:     q.InstanceID,
		host:         host,
		session:      time.Duration(q.SessionTimeoutMillis) * time.Millisecond,
		rebalance:    time.Duration(q.RebalanceTimeoutMillis) * time.Millisecond,
		protocolType: q.ProtocolType,
		size:         int64(memberOverhead + len(q.ProtocolType)),
	}
	j.rebalance = cfg.rebalanceTimeout(j.rebalance, j.session)
	for i := range q.Protocols[:min(len(q.Protocols), maxProtocols+1)] { // check refuses the one beyond maxProtocols
		p := &q.Protocols[i]
		if slices.ContainsFunc(j.protocols, func(other memberProtocol) bool { return other.name == p.Name }) {
			continue // it would count twice in the vote
		}
		j.protocols = append(j.protocols, memberProtocol{p.Name, slices.Clone(p.Metadata)}) // cloned, because the bytes belong to the connection
		j.size += int64(len(p.Name) + len(p.Metadata))
	}
	return j
}

// rebalanceTimeout returns the rebalance timeout of a member that asks for d. With a timeout of
// zero a round that no member joins would end and restart without a pause.
func (c *Config) rebalanceTimeout(d, session time.Duration) time.Duration {
	if d <= 0 { // version 0 has no such field
		d = session
	}
	return min(max(d, c.MinSession), c.MaxRebalance)
}

// maxProtocols limits the protocols of one member. Clients name a few.
const maxProtocols = 64

// check refuses requests that a member cannot have. Since version 6 names can have any length, but
// all names of a group are in its record, and in answers of older versions, whose lengths are
// int16.
func (j *joinRequest) check(cfg *Config) *kerr.Error {
	tooLong := func(p memberProtocol) bool { return len(p.name) > cfg.MaxID }
	switch {
	case len(j.protocols) > maxProtocols:
		return kerr.InvalidRequest
	case len(j.protocolType) > cfg.MaxID, slices.ContainsFunc(j.protocols, tooLong):
		return kerr.InvalidRequest
	case j.session < cfg.MinSession, j.session > cfg.MaxSession:
		return kerr.InvalidSessionTimeout
	case j.instance != nil && (*j.instance == "" || len(*j.instance) > cfg.MaxID):
		return kerr.InvalidRequest
	}
	return nil
}

// refusal returns the answer to a failed join.
func (j *joinRequest) refusal(memberID string, err *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.MemberID, resp.ErrorCode = j.version, memberID, wire.Code(err)
	return resp
}

func (j *joinRequest) refuse(memberID string, err *kerr.Error, l *deferred) {
	resp := j.refusal(memberID, err)
	l.do(func() { j.reply.Now(resp) })
}

// joinLocked handles a join: it answers it, or parks it until its round ends.
func (g *group) joinLocked(j *joinRequest, l *deferred) {
	var existing *member // the client's own, or the one it takes over
	if j.memberID != "" {
		existing = g.members[j.memberID]
	} else if j.instance != nil {
		existing = g.instances[*j.instance]
	}
	_, pending := g.pending[j.memberID]
	switch {
	case existing == nil && j.memberID == "" && len(g.members)+len(g.pending) >= g.co.cfg.MaxMembers:
		j.refuse(j.memberID, kerr.GroupMaxSizeReached, l)
	case !g.supportsLocked(j.protocolType, j.protocols, existing):
		j.refuse(j.memberID, kerr.InconsistentGroupProtocol, l)
	case j.memberID == "" && existing != nil:
		g.takeOverLocked(existing, j, l)
	case j.memberID == "" && j.instance == nil && j.version >= 4:
		g.addPendingLocked(j, l)
	case j.memberID == "":
		g.joinNewLocked(newMemberID(j.instance), j, l)
	case pending && j.instance == nil:
		g.deletePendingLocked(j.memberID)
		g.joinNewLocked(j.memberID, j, l)
	default:
		g.rejoinLocked(j, l)
	}
}

// joinNewLocked handles the join of a new member.
func (g *group) joinNewLocked(id string, j *joinRequest, l *deferred) {
	if !g.addLocked(id, j, l) {
		g.removeSessionLocked(id, l) // the id may have been given out before
		j.refuse(id, kerr.GroupMaxSizeReached, l)
		return
	}
	g.changedLocked(l)
}

// rejoinLocked handles the join of a client that says it is a member.
func (g *group) rejoinLocked(j *joinRequest, l *deferred) {
	if err := g.checkLocked(j.memberID, j.instance); err != nil {
		j.refuse(j.memberID, err, l)
		return
	}
	m := g.members[j.memberID]
	g.recordHeartbeatLocked(m, l)
	same := slices.EqualFunc(m.protocols, j.protocols, memberProtocol.equal)
	// A member that joins again without changes has missed an answer, and gets it again. A leader
	// in a stable group, though, may have seen partitions change, and wants to assign them again.
	if same && (g.state == stateCompleting || g.state == stateStable && g.leader != m.id) {
		resp := g.joinResponseLocked(m, j.version)
		l.do(func() { j.reply.Now(resp) })
		return
	}
	if !g.updateLocked(m, j) {
		j.refuse(j.memberID, kerr.GroupMaxSizeReached, l)
		return
	}
	g.parkJoinLocked(m, j, l)
	g.changedLocked(l)
}

// addPendingLocked gives out an id and asks the client to join again with it. Otherwise a client
// that retries repeatedly would leave a member behind each time.
func (g *group) addPendingLocked(j *joinRequest, l *deferred) {
	id := newMemberID(nil)
	if !g.co.memberBytes.acquire(memberOverhead) {
		j.refuse("", kerr.GroupMaxSizeReached, l)
		return
	}
	p := pendingMember{issuedAt: time.Now(), session: j.session}
	g.pending[id] = p
	l.do(func() { g.co.beginSession(g, id, p.session) })
	j.refuse(id, kerr.MemberIDRequired, l)
}

// deletePendingLocked removes a pending id that is now used, or that will not be used.
func (g *group) deletePendingLocked(id string) {
	delete(g.pending, id)
	g.co.memberBytes.release(memberOverhead)
}

// removePendingLocked removes a pending id that will not be used, with its session.
func (g *group) removePendingLocked(id string, l *deferred) {
	g.deletePendingLocked(id)
	g.removeSessionLocked(id, l)
}

// parkJoinLocked makes a member's join wait for the end of its round.
func (g *group) parkJoinLocked(m *member, j *joinRequest, l *deferred) {
	g.refuseJoinLocked(m, kerr.RebalanceInProgress, l) // an older parked join: the client has given up on it
	m.join, m.lastHeartbeat = j, time.Now()
	g.joined++
}

func (g *group) refuseJoinLocked(m *member, err *kerr.Error, l *deferred) {
	if m.join == nil {
		return
	}
	m.join.refuse(m.id, err, l)
	m.join = nil
	g.joined--
}

// joinResponseLocked returns a member's answer: its generation, and for the leader all members.
func (g *group) joinResponseLocked(m *member, version int16) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.MemberID, resp.Generation = version, m.id, g.generation
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.protocolType), kmsg.StringPtr(g.protocol)
	resp.LeaderID = g.leader
	if g.leader != m.id {
		return resp
	}
	for _, other := range g.listLocked() {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = other.id, other.instance, other.metadata(g.protocol)
		resp.Members = append(resp.Members, rm)
	}
	return resp
}

// delayedJoin is a delayed operation: a round waits until every member has joined again, at most
// for the rebalance timeout. The first round of an empty group has no members to wait for. It waits
// for InitialRebalanceDelay, whatever members join; see extendInitialJoinLocked.
type delayedJoin struct {
	g       *group
	round   round
	initial bool
	start   time.Time // start of the round
}

// awaitJoinsLocked starts the wait of a round.
func (g *group) awaitJoinsLocked(initial bool, l *deferred) {
	timeout := g.rebalanceTimeoutLocked()
	if initial {
		timeout = min(timeout, g.co.cfg.InitialRebalanceDelay)
	}
	d := &delayedJoin{g: g, round: g.round, initial: initial, start: time.Now()}
	l.do(func() { d.watch(timeout) })
}

func (d *delayedJoin) watch(timeout time.Duration) {
	_, err := d.g.co.joins.TryCompleteElseWatch(context.Background(), d, timeout, d.round)
	if err != nil && !errors.Is(err, purgatory.ErrClosed) { // if closed, the shutdown abandons the group
		panic(err) // a bug: this package makes the key and the operation
	}
}

// TryComplete reports whether all members have joined, and all clients that were given an id. It
// also reports true if the round has ended.
func (d *delayedJoin) TryComplete() bool {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.round != d.round || g.state != statePreparing, len(g.members) == 0:
		return true
	case d.initial:
		return false
	}
	return g.joined == len(g.members) && len(g.pending) == 0
}

// Complete ends the round, unless it has ended otherwise. It includes members that have joined
// since the check.
func (d *delayedJoin) Complete(outcome purgatory.Outcome, _ error) {
	g := d.g
	if outcome == purgatory.Cancelled || outcome == purgatory.Closed {
		return // a move or a shutdown abandons the group, and answers all its members
	}
	g.change(func(l *deferred) {
		if g.round == d.round && g.state == statePreparing && !g.extendInitialJoinLocked(d, l) {
			g.completeJoinLocked(l)
		}
	})
}

// extendInitialJoinLocked extends a first round while new members arrive. The round ends when none
// has arrived for InitialRebalanceDelay, or with the rebalance timeout.
func (g *group) extendInitialJoinLocked(d *delayedJoin, l *deferred) bool {
	if !d.initial || len(g.members) == 0 {
		return false
	}
	now := time.Now()
	quiet := g.lastJoin.Add(g.co.cfg.InitialRebalanceDelay).Sub(now)
	left := d.start.Add(g.rebalanceTimeoutLocked()).Sub(now)
	wait := min(quiet, left)
	if wait <= 0 {
		return false
	}
	more := &delayedJoin{g: g, round: d.round, initial: true, start: d.start}
	l.do(func() { more.watch(wait) })
	return true
}

// completeJoinLocked forms the next generation from the members that have joined. It drops the
// others, except static members: they may be restarting, and keep their slots until their sessions
// end.
func (g *group) completeJoinLocked(l *deferred) {
	for _, m := range g.listLocked() {
		if m.join == nil && m.instance == nil {
			g.dropLocked(m, purgatory.Cancelled, kerr.UnknownMemberID, l)
		}
	}
	if g.joined == 0 && len(g.members) > 0 {
		g.awaitJoinsLocked(false, l) // no member can lead: wait until one joins, or the sessions end
		return
	}
	g.nextGenerationLocked(l)
	for _, m := range g.listLocked() {
		if m.join == nil {
			continue
		}
		j, resp := m.join, g.joinResponseLocked(m, m.join.version)
		m.join, m.pendingSync, m.lastHeartbeat = nil, true, time.Now()
		g.joined--
		g.pendingSyncs++
		g.beginSessionLocked(m, l)
		l.do(func() { j.reply.Now(resp) })
	}
	if g.pendingSyncs > 0 {
		g.awaitSyncsLocked(l)
	}
}
