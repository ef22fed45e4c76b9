package group

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// groupState is the state of a group in its rebalance protocol:
//
//	Empty ──────────────► PreparingRebalance   the first member joins
//	PreparingRebalance ─► CompletingRebalance  delayedJoin ends: a new generation
//	PreparingRebalance ─► Empty                delayedJoin ends with no member left
//	CompletingRebalance ► Stable               the leader has synced, and the log has it
//	CompletingRebalance ► PreparingRebalance   a member joins, leaves or is late
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

// group is one consumer group. A request changes it in a single critical section of mu, which
// records the calls to make after the unlock: see deferred.
type group struct {
	id    string
	shard *shard
	co    *Coordinator

	mu           sync.Mutex
	state        groupState
	round        round // of the latest rebalance
	generation   int32
	protocolType string // of the current members, or of the last ones
	protocol     string // chosen for this generation
	leader       string // a member's id; the member may have left while the group is rebalancing

	members      map[string]*member
	instances    map[string]*member       // the static members, by instance id
	pending      map[string]pendingMember // ids that were given out and are not used yet
	supported    map[string]int           // members that know each protocol
	joined       int                      // members with a parked join
	pendingSyncs int                      // members that have their join response of this generation and have not synced
	lastJoin     time.Time                // time of the latest new member's first join
	storing      round                    // the latest round whose assignment was queued for the log
	unwritten    *groupWrite              // queued for the log and not encoded yet; nil: none

	offsets    map[offsetKey]committedOffset
	committing int // commits that are not yet in the log
}

func newGroup(s *shard, id string) *group {
	return &group{
		id:        id,
		shard:     s,
		co:        s.co,
		members:   map[string]*member{},
		instances: map[string]*member{},
		pending:   map[string]pendingMember{},
		supported: map[string]int{},
		offsets:   map[offsetKey]committedOffset{},
	}
}

// deferred collects calls that a change of a group requires and that must not be made under its
// lock. They are made in order once the lock is free.
type deferred struct{ calls []func() }

func (l *deferred) do(f func()) { l.calls = append(l.calls, f) }

// change runs f under the group's lock, and then, with no lock held, the calls that f has
// collected. It removes a group that is left without any data.
func (g *group) change(f func(l *deferred)) {
	var l deferred
	g.changeLocking(f, &l)
	for _, call := range l.calls {
		call()
	}
}

func (g *group) changeLocking(f func(l *deferred), l *deferred) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(l)
	if g.state == stateEmpty && len(g.pending)+len(g.offsets)+g.committing == 0 {
		g.state = stateDead
		g.shard.remove(g)
	}
}

// checkLocked returns an error unless memberID is a member, and, if the request names an instance,
// the current member of that instance.
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
func (g *group) rebalanceLocked(l *deferred) {
	for _, m := range g.members {
		m.pendingSync = false
		g.answerSyncLocked(m, kerr.RebalanceInProgress, l)
	}
	g.pendingSyncs = 0
	last, initial := g.round, g.state == stateEmpty && g.co.cfg.InitialRebalanceDelay > 0
	g.state, g.round = statePreparing, g.co.nextRound()
	l.do(func() { g.co.syncs.CancelForKey(last, nil) })
	g.awaitJoinsLocked(initial, l)
}

// changedLocked is called after a member was added, removed or changed. It begins another round, or
// checks the current one, which may have been waiting for this.
func (g *group) changedLocked(l *deferred) {
	if g.state != statePreparing {
		g.rebalanceLocked(l)
		return
	}
	current := g.round
	l.do(func() { g.co.joins.CheckAndComplete(current) })
}

// nextGenerationLocked completes the joins: the current members form the new generation.
func (g *group) nextGenerationLocked(l *deferred) {
	if g.generation++; g.generation < 0 {
		g.generation = 1 // 2^31 rebalances
	}
	for _, m := range g.members {
		m.assignment = nil // m.room stays charged, for the next assignment
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

// supportsLocked reports whether a member with these protocols can be in the group, as a
// replacement of replaced or, if that is nil, in addition to all members. All members must have
// one protocol in common.
func (g *group) supportsLocked(protocolType string, protocols []memberProtocol, replaced *member) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	others := len(g.members)
	if replaced != nil {
		others--
	}
	if others == 0 {
		return len(g.members) == 0 || protocolType == g.protocolType
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p memberProtocol) bool {
		n := g.supported[p.name]
		if replaced != nil && replaced.supports(p.name) {
			n--
		}
		return n == others
	})
}

// voteLocked chooses the protocol. Of the protocols that all members know, each member votes for
// the one it lists first, and the most votes win. Among equals the first by name wins, so that the
// choice does not change without a reason.
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

// listLocked returns the members in order of arrival.
func (g *group) listLocked() []*member {
	list := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *member) int { return cmp.Compare(a.arrival, b.arrival) })
	return list
}

// oldestLocked returns the member with the earliest arrival for which f returns true.
func (g *group) oldestLocked(f func(*member) bool) (oldest *member) {
	for _, m := range g.members {
		if f(m) && (oldest == nil || m.arrival < oldest.arrival) {
			oldest = m
		}
	}
	return oldest
}

// rebalanceTimeoutLocked returns the time that members have to join, and to sync: the longest
// timeout that one of them asks for.
func (g *group) rebalanceTimeoutLocked() (longest time.Duration) {
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// abandonLocked ends the group on this broker. Another coordinator continues it from the log.
func (g *group) abandonLocked(l *deferred) {
	if g.state == stateDead {
		return
	}
	for _, m := range g.listLocked() {
		g.dropLocked(m, purgatory.Closed, kerr.NotCoordinator, l)
	}
	for id := range g.pending {
		g.removePendingLocked(id, l)
	}
	for _, o := range g.offsets {
		g.co.offsetBytes.release(o.size)
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
