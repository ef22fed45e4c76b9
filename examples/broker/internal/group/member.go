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

// member is a member of a group. The group's lock guards it.
type member struct {
	id       string
	instance *string // its instance id, if it is a static member
	arrival  uint64  // lower than the arrival of later members
	host     string

	session   time.Duration // the member is dropped after this long without a heartbeat
	rebalance time.Duration // the longest time it needs to join again
	protocols []memberProtocol

	size           int64  // charged to memberBytes for the data of its join
	assignment     []byte // of this generation; set once the leader has synced
	assignmentSize int64  // charged to memberBytes for the latest assignment: of this generation, or of the one before
	lastHeartbeat  time.Time

	join        *joinRequest // parked; nil: none
	sync        *syncRequest // parked; nil: none
	pendingSync bool         // it has the join response of this generation and has not synced yet
}

// memberProtocol is an assignment protocol that a member knows.
type memberProtocol struct {
	name     string
	metadata []byte
}

func (p memberProtocol) equal(q memberProtocol) bool {
	return p.name == q.name && bytes.Equal(p.metadata, q.metadata)
}

// pendingMember is an id that was given to a client, which is expected to join with it.
type pendingMember struct {
	issuedAt time.Time
	session  time.Duration
}

// memberOverhead is charged for each member, and for each id given out, in addition to the bytes
// that come from clients.
const memberOverhead = 512

// uniqueBytes is the number of random bytes in a member id, and uniqueLen the length of their text.
const (
	uniqueBytes = 16
	uniqueLen   = len("-") + 2*uniqueBytes
)

// newMemberID returns an id that is unique and cannot be guessed.
func newMemberID(instance *string) string {
	var unique [uniqueBytes]byte
	_, _ = rand.Read(unique[:]) // never fails since Go 1.24
	name := "member"
	if instance != nil {
		name = *instance
	}
	return name + "-" + hex.EncodeToString(unique[:])
}

func (m *member) supports(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p memberProtocol) bool { return p.name == protocol })
}

// metadata returns the member's metadata for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// addLocked makes a client a member, with its join parked. It returns false if there is no
// capacity.
func (g *group) addLocked(id string, j *joinRequest, l *deferred) bool {
	if !g.co.memberBytes.acquire(j.size) {
		return false
	}
	if len(g.members) == 0 {
		g.protocolType = j.protocolType
	}
	g.insertLocked(&member{id: id, instance: j.instance, arrival: g.co.arrivals.Add(1)})
	m := g.members[id]
	g.applyJoinLocked(m, j)
	g.parkJoinLocked(m, j, l)
	g.lastJoin = m.lastHeartbeat
	return true
}

// insertLocked adds a member to the group's maps.
func (g *group) insertLocked(m *member) {
	g.members[m.id] = m
	if m.instance != nil {
		g.instances[*m.instance] = m
	}
}

// updateLocked replaces a member's data by that of its new join. It returns false if there is no
// capacity.
func (g *group) updateLocked(m *member, j *joinRequest) bool {
	if !g.co.memberBytes.resize(m.size, j.size) {
		return false
	}
	g.revertJoinLocked(m)
	g.applyJoinLocked(m, j)
	return true
}

// applyJoinLocked fills in the data of a join, whose capacity is already charged.
func (g *group) applyJoinLocked(m *member, j *joinRequest) {
	m.size, m.host, m.session, m.rebalance, m.protocols = j.size, j.host, j.session, j.rebalance, j.protocols
	for _, p := range m.protocols {
		g.supported[p.name]++
	}
}

// revertJoinLocked reverts applyJoinLocked. The caller returns the capacity.
func (g *group) revertJoinLocked(m *member) {
	for _, p := range m.protocols {
		if g.supported[p.name]--; g.supported[p.name] == 0 {
			delete(g.supported, p.name)
		}
	}
}

// assignLocked sets all members' assignments. It returns false if there is no capacity for them.
func (g *group) assignLocked(assigned map[string][]byte) bool {
	var from, to int64
	for id, m := range g.members {
		from += m.assignmentSize
		to += int64(len(assigned[id]))
	}
	if !g.co.memberBytes.resize(from, to) {
		return false
	}
	for id, m := range g.members {
		m.assignment, m.assignmentSize = slices.Clone(assigned[id]), int64(len(assigned[id])) // cloned, because the bytes belong to the connection
	}
	return true
}

// dropLocked removes a member. It answers the member's parked requests with why, and ends its
// session with outcome. Afterwards the caller begins another round, unless the group is joining
// anyway or ends; a round resets pendingSync, so dropLocked does not update it.
func (g *group) dropLocked(m *member, outcome purgatory.Outcome, why *kerr.Error, l *deferred) {
	g.refuseJoinLocked(m, why, l)
	g.answerSyncLocked(m, why, l)
	g.revertJoinLocked(m)
	g.co.memberBytes.release(m.size + m.assignmentSize)
	delete(g.members, m.id)
	if m.instance != nil && g.instances[*m.instance] == m {
		delete(g.instances, *m.instance)
	}
	g.endSessionLocked(m, outcome, l)
}
