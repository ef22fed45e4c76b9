package broker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Fetch sessions (KIP-227). A client names all its partitions once. Each later fetch names only the
// partitions whose position changed, and its answer only those that changed at the broker. The cost
// of a fetch then depends on the number of changes, not on the number of partitions:
//
//   - A fetch of a session waits on one key, the session's, instead of one for each partition.
//   - A partition knows its sessions. An event at the partition makes it pending there, and a fetch
//     checks only pending partitions.
//
// Invariant: a partition of a session is pending unless the last answer found no records there and
// no event has occurred there since. It is entered under its key before it is first checked, so an
// event in between makes it pending again.
//
// Lock order: fetchSession.mu, then fetchSessions.mu or the mutex of a partition. No purgatory is
// called with any of them held.
type fetchSessions struct {
	maxSessions, maxParts int
	parts                 atomic.Int64 // in all sessions

	mu          sync.RWMutex
	byID        map[int32]*fetchSession
	byFollower  map[int32]*fetchSession
	byPartition map[meta.PartitionKey][]*sessionPart // the lists are immutable: a change replaces the list
}

// fetchSession is the session of one client.
type fetchSession struct {
	srv       *Server
	id        int32
	follower  int32        // -1: a consumer's session
	byTopic   bool         // before version 13, clients name a partition's topic by name
	lastFetch atomic.Int64 // the broker's uptime at the session's last fetch

	mu         sync.Mutex
	epoch      int32 // the epoch that the next fetch must have
	ended      bool
	unanswered bool // no answer was sent yet; the first one names all partitions
	parts      map[sessionKey]*sessionPart
	pending    []*sessionPart // without duplicates; partitions whose records were sent last are at the end
}

// sessionKey is a partition as the client names it.
type sessionKey struct {
	name  string
	id    meta.TopicID
	index int32
}

// sessionPart is a partition of a session. The session's lock guards it.
type sessionPart struct {
	fetchPart
	session *fetchSession
	pending bool
	removed bool // removed from the session

	hw, start int64 // values in the last answer
}

const (
	sessionIdle  = 2 * time.Minute // a session that was silent for longer may be replaced by a new one
	initialEpoch = 0               // asks for a new session
	finalEpoch   = -1              // asks for no session
)

// sessionOf returns the session of a fetch. It returns nil if the client wants none, or if there is
// no capacity for another one.
func (s *Server) sessionOf(q *kmsg.FetchRequest, follower bool) (*fetchSession, *kerr.Error) {
	if q.Version < 7 {
		return nil, nil
	}
	if q.SessionEpoch == initialEpoch || q.SessionEpoch == finalEpoch {
		if old := s.sessions.find(q.SessionID); old != nil {
			s.endSession(old)
		}
		if q.SessionEpoch == finalEpoch {
			return nil, nil
		}
		id := int32(-1)
		if follower {
			id = q.ReplicaID
		}
		return s.openSession(q, id), nil
	}
	session := s.sessions.find(q.SessionID)
	if session == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	switch {
	case session.byTopic != (q.Version < 13):
		return nil, kerr.FetchSessionTopicIDError
	case session.epoch != q.SessionEpoch:
		return nil, kerr.InvalidFetchSessionEpoch
	}
	if session.epoch++; session.epoch < 0 {
		session.epoch = 1
	}
	return session, nil
}

func (ss *fetchSessions) len() int {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return len(ss.byID)
}

func (ss *fetchSessions) find(id int32) *fetchSession {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byID[id]
}

// openSession creates a session, or returns nil if there is no capacity.
func (s *Server) openSession(q *kmsg.FetchRequest, follower int32) *fetchSession {
	parts := 0
	for i := range q.Topics {
		parts += len(q.Topics[i].Partitions)
	}
	ss, now := &s.sessions, s.uptime.Now()
	ss.mu.Lock()
	replaced := ss.byFollower[follower] // a follower has one session at a time
	if replaced == nil && len(ss.byID) >= ss.maxSessions {
		for _, other := range ss.byID {
			if lastFetch := other.lastFetch.Load(); now-time.Duration(lastFetch) > sessionIdle && (replaced == nil || lastFetch < replaced.lastFetch.Load()) {
				replaced = other
			}
		}
	}
	var session *fetchSession
	if replaced != nil || len(ss.byID) < ss.maxSessions && int(ss.parts.Load())+parts <= ss.maxParts {
		session = &fetchSession{srv: s, follower: follower, byTopic: q.Version < 13, epoch: 1, unanswered: true, parts: make(map[sessionKey]*sessionPart, parts)}
		session.lastFetch.Store(int64(now))
		for session.id == 0 || ss.byID[session.id] != nil {
			session.id = rand.Int32()
		}
		if ss.byID == nil {
			ss.byID, ss.byFollower = map[int32]*fetchSession{}, map[int32]*fetchSession{}
		}
		ss.byID[session.id] = session
		if follower >= 0 {
			ss.byFollower[follower] = session
		}
	}
	ss.mu.Unlock()
	if replaced != nil {
		s.endSession(replaced)
	}
	return session
}

// endSession removes a session. A fetch that waits in it is answered with the records there are.
func (s *Server) endSession(session *fetchSession) {
	session.mu.Lock()
	parts := session.parts
	session.ended, session.parts = true, nil
	session.mu.Unlock()
	ss := &s.sessions
	for _, part := range parts {
		ss.deregister(part)
	}
	ss.mu.Lock()
	delete(ss.byID, session.id)
	if ss.byFollower[session.follower] == session {
		delete(ss.byFollower, session.follower)
	}
	ss.mu.Unlock()
	s.fetchPurgatory(session.watermark()).CheckAndComplete(session.key())
}

// register registers a partition of a session under the partition's key.
func (ss *fetchSessions) register(part *sessionPart) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byPartition == nil {
		ss.byPartition = map[meta.PartitionKey][]*sessionPart{}
	}
	list := ss.byPartition[part.p.Key]
	ss.byPartition[part.p.Key] = append(slices.Clip(list), part)
}

func (ss *fetchSessions) deregister(part *sessionPart) {
	ss.parts.Add(-1)
	if part.p == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(ss.byPartition[part.p.Key]), func(x *sessionPart) bool { return x == part })
	if len(list) == 0 {
		delete(ss.byPartition, part.p.Key)
	} else {
		ss.byPartition[part.p.Key] = list
	}
}

func (ss *fetchSessions) partsOf(key meta.PartitionKey) []*sessionPart {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byPartition[key]
}

// key returns the key that the session's fetches wait on.
func (session *fetchSession) key() watchKey {
	return watchKey{meta.PartitionKey{Index: session.id}, noWatermark}
}

// watermark returns the watermark that the session's fetches wait for.
func (session *fetchSession) watermark() watermark {
	if session.follower >= 0 {
		return logEndOffset
	}
	return highWatermark
}

// markPending makes a partition pending in its sessions, and completes the fetches that wait
// there for the watermark. A rise of the high watermark changes a follower's session too, but
// its fetches do not wait for it.
func (s *Server) markPending(k watchKey) {
	parts := s.sessions.partsOf(k.PartitionKey)
	for _, part := range parts {
		waits := part.session.watermark() == k.watermark
		if !waits && part.session.follower < 0 {
			continue
		}
		part.session.mu.Lock()
		part.markPendingLocked()
		part.session.mu.Unlock()
		switch {
		case !waits:
		case len(parts) <= maxInline:
			s.fetchPurgatory(k.watermark).CheckAndComplete(part.session.key())
		default:
			_ = s.fetchPurgatory(k.watermark).CheckAndCompleteLater(part.session.key()) // fails only during a shutdown, which completes all fetches
		}
	}
}

// logStartMoved makes a partition pending whose log start has moved. No fetch waits for that.
func (ss *fetchSessions) logStartMoved(key meta.PartitionKey) {
	for _, part := range ss.partsOf(key) {
		part.session.mu.Lock()
		part.markPendingLocked()
		part.session.mu.Unlock()
	}
}

func (part *sessionPart) markPendingLocked() {
	if !part.pending && !part.removed {
		part.pending = true
		part.session.pending = append(part.session.pending, part)
	}
}

// update applies a fetch request to the session's partitions. It returns the partitions that the
// fetch names, or none if the session has ended. ok is false if the sessions hold too many
// partitions.
func (session *fetchSession) update(q *kmsg.FetchRequest) (requested []*sessionPart, ok bool) {
	session.lastFetch.Store(int64(session.srv.uptime.Now()))
	session.mu.Lock()
	defer session.mu.Unlock()
	if session.ended {
		return nil, true
	}
	for i := range q.Topics {
		rt := &q.Topics[i]
		topic := &fetchTopic{rt.Topic, rt.TopicID}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			k := sessionKey{rt.Topic, rt.TopicID, rp.Partition}
			part := session.parts[k]
			if part == nil {
				part = &sessionPart{session: session, fetchPart: fetchPart{topic: topic, index: rp.Partition}, hw: -1, start: -1}
				session.parts[k] = part
				session.srv.sessions.parts.Add(1)
			}
			part.epoch, part.offset, part.maxBytes = rp.CurrentLeaderEpoch, rp.FetchOffset, int(max(rp.PartitionMaxBytes, 0))
			if q.Version < 9 {
				part.epoch = -1
			}
			part.err, part.diverging = nil, nil
			session.resolveLocked(part)
			part.markPendingLocked()
			requested = append(requested, part)
		}
	}
	for i := range q.ForgottenTopics {
		rt := &q.ForgottenTopics[i]
		for _, index := range rt.Partitions {
			k := sessionKey{rt.Topic, rt.TopicID, index}
			if part := session.parts[k]; part != nil {
				delete(session.parts, k)
				part.removed = true
				session.srv.sessions.deregister(part)
			}
		}
	}
	session.pending = slices.DeleteFunc(session.pending, func(part *sessionPart) bool { return part.removed })
	return requested, int(session.srv.sessions.parts.Load()) <= session.srv.sessions.maxParts
}

// resolveLocked looks up the replica of a partition that has none yet.
func (session *fetchSession) resolveLocked(part *sessionPart) {
	if part.p != nil {
		return
	}
	part.p, part.err = session.srv.lookup(part.topic.name, part.topic.id, !session.byTopic, part.index)
	if part.p != nil {
		session.srv.sessions.register(part)
	}
}

// empty reports whether the session has no partitions.
func (session *fetchSession) empty() bool {
	session.mu.Lock()
	defer session.mu.Unlock()
	return len(session.parts) == 0
}

func (session *fetchSession) enough(f *fetch) bool {
	session.mu.Lock()
	defer session.mu.Unlock()
	if session.ended {
		return true
	}
	var total int64
	for _, part := range session.pending {
		n, ok := f.checkPart(&part.fetchPart)
		if !ok {
			return true
		}
		total += n
	}
	return total >= f.minBytes
}

// fill reads the pending partitions into an answer. The first answer lists every partition.
func (session *fetchSession) fill(f *fetch, resp *kmsg.FetchResponse) {
	session.mu.Lock()
	defer session.mu.Unlock()
	resp.SessionID = session.id
	a := answer{f: f, resp: resp, maxBytes: f.conn.OutboundCapacity(f.maxBytes)}
	var unread, sent []*sessionPart
	for _, part := range session.pending {
		sp, err := a.read(&part.fetchPart)
		changed := err != nil || len(sp.RecordBatches) > 0 || sp.DivergingEpoch.Epoch >= 0 || sp.HighWatermark != part.hw || sp.LogStartOffset != part.start
		if changed || session.unanswered {
			a.add(part.topic, sp)
		}
		part.hw, part.start = sp.HighWatermark, sp.LogStartOffset
		switch {
		case err != nil:
			part.err = nil // clear the error, so that the next fetch checks again
			session.resolveLocked(part)
			sent = append(sent, part)
		case len(sp.RecordBatches) > 0:
			sent = append(sent, part)
		case part.diverging == nil && part.p.State(part.offset, part.epoch, f.follower).Readable > 0:
			unread = append(unread, part) // the answer had no space left for its records
		default:
			part.pending = false
		}
	}
	session.pending, session.unanswered = slices.Concat(unread, sent), false
}
