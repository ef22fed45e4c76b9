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

// joinRequest is a JoinGroup request, as far as it is needed once it is parked.
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
	size         int64  // what a member that joins with it is charged
	formerLeader string // of a take-over: who led before
}

func (co *Coordinator) joinGroup(q *kmsg.JoinGroupRequest, host string, r Reply) {
	j := newJoinRequest(&co.cfg, q, host, r)
	err := j.check(&co.cfg)
	if q.Group == "" {
		err = kerr.InvalidGroupID
	}
	if err == nil {
		// Only who comes without an id may begin a group: an id that the group does
		// not know is one of a member that has been dropped.
		err = co.onGroup(q.Group, j.memberID == "", func(g *group, l *later) { g.joinLocked(j, l) })
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
	for i := range q.Protocols[:min(len(q.Protocols), maxProtocols+1)] { // check refuses the last
		p := &q.Protocols[i]
		if slices.ContainsFunc(j.protocols, func(other memberProtocol) bool { return other.name == p.Name }) {
			continue // it would count twice in the vote
		}
		j.protocols = append(j.protocols, memberProtocol{p.Name, slices.Clone(p.Metadata)}) // the bytes are the connection's
		j.size += int64(len(p.Name) + len(p.Metadata))
	}
	return j
}

// rebalanceTimeout is the one that a member gets which asks for d. One of no time at all
// would have a round that nobody joins end, and begin anew, without a pause.
func (c *Config) rebalanceTimeout(d, session time.Duration) time.Duration {
	if d <= 0 { // version 0 does not say
		d = session
	}
	return min(max(d, c.MinSession), c.MaxRebalance)
}

// maxProtocols bounds the protocols of one member. Clients name a few.
const maxProtocols = 64

// check refuses what a member cannot have. Versions from 6 on have names of any length: all
// of a group's go into its record, and into answers of older versions, which count up to an
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

// refusal is the answer to a join that came to nothing.
func (j *joinRequest) refusal(memberID string, err *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.MemberID, resp.ErrorCode = j.version, memberID, wire.Code(err)
	return resp
}

func (j *joinRequest) refuse(memberID string, err *kerr.Error, l *later) {
	resp := j.refusal(memberID, err)
	l.do(func() { j.reply.Now(resp) })
}

// joinLocked takes a join in: it is answered, or parked until its round ends.
func (g *group) joinLocked(j *joinRequest, l *later) {
	var place *member // that the client has, or takes over
	if j.memberID != "" {
		place = g.members[j.memberID]
	} else if j.instance != nil {
		place = g.instances[*j.instance]
	}
	_, promised := g.promised[j.memberID]
	switch {
	case place == nil && j.memberID == "" && len(g.members)+len(g.promised) >= g.co.cfg.MaxMembers:
		j.refuse(j.memberID, kerr.GroupMaxSizeReached, l)
	case !g.supportsLocked(j.protocolType, j.protocols, place):
		j.refuse(j.memberID, kerr.InconsistentGroupProtocol, l)
	case j.memberID == "" && place != nil:
		g.takeOverLocked(place, j, l)
	case j.memberID == "" && j.instance == nil && j.version >= 4:
		g.promiseLocked(j, l)
	case j.memberID == "":
		g.comeLocked(newMemberID(j.instance), j, l)
	case promised && j.instance == nil:
		g.forgetPromiseLocked(j.memberID)
		g.comeLocked(j.memberID, j, l)
	default:
		g.joinAgainLocked(j, l)
	}
}

// comeLocked is the join of a new member.
func (g *group) comeLocked(id string, j *joinRequest, l *later) {
	if !g.addLocked(id, j, l) {
		g.removeSessionLocked(id, l) // it may have been promised
		j.refuse(id, kerr.GroupMaxSizeReached, l)
		return
	}
	g.changedLocked(l)
}

// joinAgainLocked is that of a client that says it is a member.
func (g *group) joinAgainLocked(j *joinRequest, l *later) {
	if err := g.checkLocked(j.memberID, j.instance); err != nil {
		j.refuse(j.memberID, err, l)
		return
	}
	m := g.members[j.memberID]
	g.aliveLocked(m, l)
	same := slices.EqualFunc(m.protocols, j.protocols, memberProtocol.equal)
	// A member that comes again with nothing new has missed an answer, and gets
	// it. But a leader may have seen partitions change: it wants to assign anew.
	if same && (g.state == stateCompleting || g.state == stateStable && g.leader != m.id) {
		resp := g.joinedLocked(m, j.version)
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

// promiseLocked gives out an id, and has the client join again with it. A client
// that tries over and over would leave a member behind each time otherwise.
func (g *group) promiseLocked(j *joinRequest, l *later) {
	id := newMemberID(nil)
	if !g.co.memberBytes.take(memberOverhead) {
		j.refuse("", kerr.GroupMaxSizeReached, l)
		return
	}
	p := promisedMember{givenAt: time.Now(), session: j.session}
	g.promised[id] = p
	l.do(func() { g.co.beginSession(g, id, p.session) })
	j.refuse(id, kerr.MemberIDRequired, l)
}

// forgetPromiseLocked: the id is used now, or will not be.
func (g *group) forgetPromiseLocked(id string) {
	delete(g.promised, id)
	g.co.memberBytes.give(memberOverhead)
}

// breakPromiseLocked: it will not be.
func (g *group) breakPromiseLocked(id string, l *later) {
	g.forgetPromiseLocked(id)
	g.removeSessionLocked(id, l)
}

// parkJoinLocked has a member's join wait for its round to end.
func (g *group) parkJoinLocked(m *member, j *joinRequest, l *later) {
	g.refuseJoinLocked(m, kerr.RebalanceInProgress, l) // one that waits already: the client has given up on it
	m.join, m.seenAt = j, time.Now()
	g.joined++
}

// refuseJoinLocked answers a parked join, if there is one.
func (g *group) refuseJoinLocked(m *member, err *kerr.Error, l *later) {
	if m.join == nil {
		return
	}
	m.join.refuse(m.id, err, l)
	m.join = nil
	g.joined--
}

// joinedLocked returns a member's answer: its generation, and for the leader all members.
func (g *group) joinedLocked(m *member, version int16) *kmsg.JoinGroupResponse {
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

// delayedJoin is a delayed operation: a round waits until every member has
// joined again, at most for the rebalance timeout. The first round of an empty
// group knows nobody to wait for. It waits for its time, InitialRebalanceDelay,
// whoever has come; see awaitMoreLocked.
type delayedJoin struct {
	g       *group
	round   round
	first   bool
	begunAt time.Time // the round
}

// awaitJoinsLocked begins a round's wait.
func (g *group) awaitJoinsLocked(first bool, l *later) {
	timeout := g.rebalanceTimeoutLocked()
	if first {
		timeout = min(timeout, g.co.cfg.InitialRebalanceDelay)
	}
	d := &delayedJoin{g: g, round: g.round, first: first, begunAt: time.Now()}
	l.do(func() { d.watch(timeout) })
}

func (d *delayedJoin) watch(timeout time.Duration) {
	_, err := d.g.co.joins.TryCompleteElseWatch(context.Background(), d, timeout, d.round)
	if err != nil && !errors.Is(err, purgatory.ErrClosed) { // then the shutdown abandons the group
		panic(err) // the key and the operation are ours: a bug
	}
}

// TryComplete reports whether everybody is there: the members, and those who
// were given an id to come back with. A round that is over waits for nothing.
func (d *delayedJoin) TryComplete() bool {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.round != d.round || g.state != statePreparing, len(g.members) == 0:
		return true
	case d.first:
		return false
	}
	return g.joined == len(g.members) && len(g.promised) == 0
}

// Complete ends the round, if it was not ended otherwise. Who came between the
// check and this is in.
func (d *delayedJoin) Complete(outcome purgatory.Outcome, _ error) {
	g := d.g
	if outcome == purgatory.Cancelled || outcome == purgatory.Closed {
		return // by a move or a shutdown, which abandons the group: everybody is answered there
	}
	g.change(func(l *later) {
		if g.round == d.round && g.state == statePreparing && !g.awaitMoreLocked(d, l) {
			g.endJoiningLocked(l)
		}
	})
}

// awaitMoreLocked prolongs a first round: while members come, more may. It ends
// when nobody has come for InitialRebalanceDelay, and with the rebalance timeout.
func (g *group) awaitMoreLocked(d *delayedJoin, l *later) bool {
	if !d.first || len(g.members) == 0 {
		return false
	}
	now := time.Now()
	quiet := g.cameAt.Add(g.co.cfg.InitialRebalanceDelay).Sub(now)
	left := d.begunAt.Add(g.rebalanceTimeoutLocked()).Sub(now)
	wait := min(quiet, left)
	if wait <= 0 {
		return false
	}
	more := &delayedJoin{g: g, round: d.round, first: true, begunAt: d.begunAt}
	l.do(func() { more.watch(wait) })
	return true
}

// endJoiningLocked makes the next generation of those who have joined. Others
// are dropped, but static members: they are being restarted, and keep their
// place until their session ends.
func (g *group) endJoiningLocked(l *later) {
	for _, m := range g.listLocked() {
		if m.join == nil && m.instance == nil {
			g.dropLocked(m, purgatory.Cancelled, kerr.UnknownMemberID, l)
		}
	}
	if g.joined == 0 && len(g.members) > 0 {
		g.awaitJoinsLocked(false, l) // nobody could lead: until somebody comes, or the sessions end
		return
	}
	g.nextGenerationLocked(l)
	for _, m := range g.listLocked() {
		if m.join == nil {
			continue
		}
		j, resp := m.join, g.joinedLocked(m, m.join.version)
		m.join, m.unsynced, m.seenAt = nil, true, time.Now()
		g.joined--
		g.unsynced++
		g.beginSessionLocked(m, l)
		l.do(func() { j.reply.Now(resp) })
	}
	if g.unsynced > 0 {
		g.awaitSyncsLocked(l)
	}
}
