package group

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// groupState is where a group is in its round:
//
//	Empty ──────────────► PreparingRebalance   the first member joins
//	PreparingRebalance ─► CompletingRebalance  delayedJoin ends: a new generation
//	PreparingRebalance ─► Empty                delayedJoin ends with no member left
//	CompletingRebalance ► Stable               the leader has synced, and the log has it
//	CompletingRebalance ► PreparingRebalance   a member comes, goes or is late
//	Stable ─────────────► PreparingRebalance   the same
//	any ────────────────► Dead                 removed, or coordinated elsewhere now
type groupState uint8

const (
	stateEmpty groupState = iota
	statePreparing
	stateCompleting
	stateStable
	stateDead
)

func (s groupState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// group is one consumer group. All that a request does to it, it does in one
// critical section of mu; what follows from it, it leaves for later.
type group struct {
	id    string
	shard *shard
	co    *Coordinator

	mu           sync.Mutex
	state        groupState
	round        round // of the latest rebalance
	generation   int32
	protocolType string // of the members there are, or were last
	protocol     string // chosen for this generation
	leader       string // a member's id; may have gone while the group is rebalancing

	members   map[string]*member
	instances map[string]*member        // the static ones
	promised  map[string]promisedMember // ids given out and not used yet
	supported map[string]int            // members that know each protocol
	joined    int                       // members with a parked join
	unsynced  int                       // members that have this generation's join and have not synced
	cameAt    time.Time                 // when the latest new member came
	storing   round                     // whose assignment went on its way through the log last
	unwritten *groupWrite               // in the queue to the log, and not made yet; nil: none

	offsets    map[offsetKey]committedOffset
	committing int // commits on their way through the log
}

func newGroup(s *shard, id string) *group {
	return &group{
		id:        id,
		shard:     s,
		co:        s.co,
		members:   map[string]*member{},
		instances: map[string]*member{},
		promised:  map[string]promisedMember{},
		supported: map[string]int{},
		offsets:   map[offsetKey]committedOffset{},
	}
}

// later is what a change of a group asks for: calls that must not be made under
// its lock. They are made in their order once the lock is free.
type later struct{ calls []func() }

func (l *later) do(f func()) { l.calls = append(l.calls, f) }

// change runs f under the group's lock and then, with no lock held, what f has
// put off. A group that is left with nothing to know about it is removed.
func (g *group) change(f func(l *later)) {
	var l later
	g.changeLocking(f, &l)
	for _, call := range l.calls {
		call()
	}
}

func (g *group) changeLocking(f func(l *later), l *later) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(l)
	if g.state == stateEmpty && len(g.promised)+len(g.offsets)+g.committing == 0 {
		g.state = stateDead
		g.shard.remove(g)
	}
}

// checkLocked returns an error unless a request comes from a member: of this id, and
// if it names an instance, the one that has that place now.
func (g *group) checkLocked(memberID string, instance *string) *kerr.Error {
	if instance != nil {
		switch m := g.instances[*instance]; {
		case m == nil:
			return kerr.UnknownMemberID
		case m.id != memberID:
			return kerr.FencedInstanceID
		}
	}
	if g.members[memberID] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

// rebalanceLocked begins a new round: every member has to join again.
func (g *group) rebalanceLocked(l *later) {
	for _, m := range g.members {
		m.unsynced = false
		g.answerSyncLocked(m, kerr.RebalanceInProgress, l)
	}
	g.unsynced = 0
	last, first := g.round, g.state == stateEmpty && g.co.cfg.InitialRebalanceDelay > 0
	g.state, g.round = statePreparing, g.co.nextRound()
	l.do(func() { g.co.syncs.CancelForKey(last, nil) })
	g.awaitJoinsLocked(first, l)
}

// changedLocked follows from a member that has come, gone or changed: there has
// to be another round, or the one that is under way may have been waiting for
// this.
func (g *group) changedLocked(l *later) {
	if g.state != statePreparing {
		g.rebalanceLocked(l)
		return
	}
	current := g.round
	l.do(func() { g.co.joins.CheckAndComplete(current) })
}

// nextGenerationLocked ends the joining: the group is those who are in it now.
func (g *group) nextGenerationLocked(l *later) {
	if g.generation++; g.generation < 0 {
		g.generation = 1 // 2^31 rebalances
	}
	for _, m := range g.members {
		m.assignment = nil // its room stays for the next one
	}
	if len(g.members) == 0 {
		g.state, g.protocol, g.leader = stateEmpty, "", ""
		g.saveEmptyLocked(l)
		return
	}
	g.state, g.protocol = stateCompleting, g.voteLocked()
	if m := g.members[g.leader]; m == nil || m.join == nil {
		g.leader = g.oldestLocked(func(m *member) bool { return m.join != nil }).id
	}
}

// supportsLocked reports whether a member with these protocols can be in the
// group, in the place of another one or, with nil, besides all of them: there
// must be one protocol that everybody knows.
func (g *group) supportsLocked(protocolType string, protocols []memberProtocol, inPlaceOf *member) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	others := len(g.members)
	if inPlaceOf != nil {
		others--
	}
	if others == 0 {
		return len(g.members) == 0 || protocolType == g.protocolType
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p memberProtocol) bool {
		n := g.supported[p.name]
		if inPlaceOf != nil && inPlaceOf.knows(p.name) {
			n--
		}
		return n == others
	})
}

// voteLocked chooses the protocol: of those that all know, each member votes for
// the one that it names first, and most votes win. Of equals it is the first by
// name, so that the choice does not change without a reason.
func (g *group) voteLocked() (elected string) {
	votes := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.supported[p.name] == len(g.members) {
				votes[p.name]++
				break
			}
		}
	}
	for name, n := range votes {
		if best := votes[elected]; n > best || n == best && name < elected {
			elected = name
		}
	}
	return elected
}

// listLocked is the members in the order they came.
func (g *group) listLocked() []*member {
	list := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *member) int { return cmp.Compare(a.arrival, b.arrival) })
	return list
}

// oldestLocked returns the first that came of those for which f returns true.
func (g *group) oldestLocked(f func(*member) bool) (oldest *member) {
	for _, m := range g.members {
		if f(m) && (oldest == nil || m.arrival < oldest.arrival) {
			oldest = m
		}
	}
	return oldest
}

// rebalanceTimeoutLocked is how long members have to join, and to sync: as long
// as the slowest of them asks for.
func (g *group) rebalanceTimeoutLocked() (longest time.Duration) {
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// abandonLocked ends the group here. It goes on elsewhere, from what is in the log.
func (g *group) abandonLocked(l *later) {
	if g.state == stateDead {
		return
	}
	for _, m := range g.listLocked() {
		g.dropLocked(m, purgatory.Closed, kerr.NotCoordinator, l)
	}
	for id := range g.promised {
		g.breakPromiseLocked(id, l)
	}
	for _, o := range g.offsets {
		g.co.offsetBytes.give(o.size)
	}
	g.offsets = nil
	g.state = stateDead
	g.shard.remove(g)
	last := g.round
	l.do(func() {
		g.co.joins.CancelForKey(last, nil)
		g.co.syncs.CancelForKey(last, nil)
	})
}
