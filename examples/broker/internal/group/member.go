package group

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/purgatory"
)

// member is one of a group's. The group's lock guards it.
type member struct {
	id       string
	instance *string // its name, if it is a static one
	arrival  uint64  // lower than that of members who came later
	host     string

	session   time.Duration // without a sign of life for this long it has gone
	rebalance time.Duration // it needs at most this long to join again
	protocols []memberProtocol

	size       int64  // taken of memberBytes for what its join said
	assignment []byte // of this generation, once the leader has synced
	room       int64  // taken of memberBytes for the latest assignment: that of this generation, or the one before
	seenAt     time.Time

	join     *joinRequest // parked; nil: none
	sync     *syncRequest // parked; nil: none
	unsynced bool         // it has this generation's join and has not synced yet
}

// memberProtocol is a way of assigning partitions that a member knows.
type memberProtocol struct {
	name     string
	metadata []byte
}

func (p memberProtocol) equal(q memberProtocol) bool {
	return p.name == q.name && bytes.Equal(p.metadata, q.metadata)
}

// promisedMember is an id that was given to a client which is to join with it.
type promisedMember struct {
	givenAt time.Time
	session time.Duration
}

// memberOverhead is charged for each member and each id given out, besides the
// bytes that come from clients.
const memberOverhead = 512

// uniqueBytes are what an id has that no other has, and uniqueLen is their length in it.
const (
	uniqueBytes = 16
	uniqueLen   = len("-") + 2*uniqueBytes
)

// newMemberID makes an id that was never there before, and that nobody guesses.
func newMemberID(instance *string) string {
	var unique [uniqueBytes]byte
	_, _ = rand.Read(unique[:]) // never fails since Go 1.24
	name := "member"
	if instance != nil {
		name = *instance
	}
	return name + "-" + hex.EncodeToString(unique[:])
}

func (m *member) knows(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p memberProtocol) bool { return p.name == protocol })
}

// metadata is what the member said for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// addLocked makes a client a member, with its join parked. False: there is no
// room for it.
func (g *group) addLocked(id string, j *joinRequest, l *later) bool {
	if !g.co.memberBytes.take(j.size) {
		return false
	}
	if len(g.members) == 0 {
		g.protocolType = j.protocolType
	}
	g.enterLocked(&member{id: id, instance: j.instance, arrival: g.co.arrivals.Add(1)})
	m := g.members[id]
	g.takeRequestLocked(m, j)
	g.parkJoinLocked(m, j, l)
	g.cameAt = m.seenAt
	return true
}

// enterLocked puts a member in its place.
func (g *group) enterLocked(m *member) {
	g.members[m.id] = m
	if m.instance != nil {
		g.instances[*m.instance] = m
	}
}

// updateLocked gives a member what its new join says. False: there is no room.
func (g *group) updateLocked(m *member, j *joinRequest) bool {
	if !g.co.memberBytes.resize(m.size, j.size) {
		return false
	}
	g.forgetRequestLocked(m)
	g.takeRequestLocked(m, j)
	return true
}

// takeRequestLocked fills in what comes from a join, for which room is taken.
func (g *group) takeRequestLocked(m *member, j *joinRequest) {
	m.size, m.host, m.session, m.rebalance, m.protocols = j.size, j.host, j.session, j.rebalance, j.protocols
	for _, p := range m.protocols {
		g.supported[p.name]++
	}
}

// forgetRequestLocked is the reverse. What room it had is left to the caller.
func (g *group) forgetRequestLocked(m *member) {
	for _, p := range m.protocols {
		if g.supported[p.name]--; g.supported[p.name] == 0 {
			delete(g.supported, p.name)
		}
	}
}

// assignLocked sets all members' assignments. False: there is no room for them.
func (g *group) assignLocked(assigned map[string][]byte) bool {
	var from, to int64
	for id, m := range g.members {
		from += m.room
		to += int64(len(assigned[id]))
	}
	if !g.co.memberBytes.resize(from, to) {
		return false
	}
	for id, m := range g.members {
		m.assignment, m.room = slices.Clone(assigned[id]), int64(len(assigned[id])) // the bytes are the connection's
	}
	return true
}

// dropLocked takes a member out. What it has parked is answered with why; its
// session has ended by outcome. There has to be another round then, unless the
// group is joining anyway, or ends: so unsynced begins anew, and is not kept.
func (g *group) dropLocked(m *member, outcome purgatory.Outcome, why *kerr.Error, l *later) {
	g.refuseJoinLocked(m, why, l)
	g.answerSyncLocked(m, why, l)
	g.forgetRequestLocked(m)
	g.co.memberBytes.give(m.size + m.room)
	delete(g.members, m.id)
	if m.instance != nil && g.instances[*m.instance] == m {
		delete(g.instances, *m.instance)
	}
	g.endSessionLocked(m, outcome, l)
}
