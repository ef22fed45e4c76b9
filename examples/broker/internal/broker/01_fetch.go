package broker

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// A fetch requests records of some partitions and names the longest time to wait for enough of
// them. The broker holds the fetch until then. This file is the core of the example: the operation
// that waits in the purgatory.

// watchKey is the key that a fetch waits on: one watermark of one partition. A consumer may read up
// to the high watermark, a follower up to the end of the log.
type watchKey struct {
	meta.PartitionKey
	watermark watermark
}

type watermark uint8

const (
	highWatermark watermark = iota
	logEndOffset
	noWatermark // no watermark, but a whole session; its id takes the place of the partition index
)

// fetch is a delayed operation, watched on every partition it reads. It copies the fields it needs
// and does not retain the request, because thousands of fetches wait at once.
type fetch struct {
	srv      *Server
	conn     *wire.Conn
	reply    *wire.Reply
	version  int16
	follower bool
	maxBytes int
	minBytes int64
	session  *fetchSession // nil: sessionless
	parts    []fetchPart   // used without a session
	watching int           // number of watch keys
	arrived  time.Time
	maxWait  time.Duration

	// changed is the time of the last append, or rise of the high watermark, that this fetch had
	// seen when it found enough records. TryComplete writes it and Complete reads it; the purgatory
	// never runs the two concurrently.
	changed time.Time
	// readable is the number of bytes that the fetch saw then. The same rule applies.
	readable int64
}

// fetchPart is one partition of a fetch. Partitions keep the order of the request.
type fetchPart struct {
	topic     *fetchTopic
	index     int32
	epoch     int32
	offset    int64
	maxBytes  int
	p         *replica.Partition // nil if the lookup failed: see err
	err       *kerr.Error        // found when the request was read
	diverging *log.EpochStart    // likewise, for a follower that must truncate its log
}

// fetchTopic is the topic as the client named it; the answer must use the same form.
type fetchTopic struct {
	name string
	id   meta.TopicID
}

// lastReplicaFetch is the last version in which a follower sends its id in a plain field. Later
// versions use a tagged field, which no follower here sends.
const lastReplicaFetch = 14

func handleFetch(s *Server, c *wire.Conn, q *kmsg.FetchRequest, r *wire.Reply) {
	f := &fetch{
		srv:      s,
		conn:     c,
		reply:    r,
		version:  q.Version,
		follower: q.Version <= lastReplicaFetch && q.ReplicaID >= 0,
		maxBytes: min(int(max(q.MaxBytes, 0)), s.cfg.MaxFetch),
		arrived:  time.Now(),
	}
	// A fetch cannot wait for more than an answer may hold.
	f.minBytes = min(int64(q.MinBytes), int64(f.maxBytes))
	refuse := func(err *kerr.Error) {
		resp := q.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = wire.Code(err)
		r.Now(resp)
	}
	if f.follower {
		if from, ok := s.Links.Caller(c.RemoteAddr()); !ok || from != q.ReplicaID {
			refuse(kerr.ClusterAuthorizationFailed) // any client can put a broker's id into the request
			return
		}
	}
	var err *kerr.Error
	if f.session, err = s.sessionOf(q, f.follower); err != nil {
		refuse(err)
		return
	}
	keys, ok := f.begin(q)
	if !ok {
		s.endSession(f.session)
		refuse(kerr.FetchSessionIDNotFound) // the client continues without a session
		return
	}
	if len(keys) == 0 || q.MaxWaitMillis <= 0 {
		f.answer(0) // there is an error, or nothing to wait for
		return
	}
	// MaxPending bounds the number of fetches, but each may watch thousands of keys.
	f.watching = len(keys)
	if s.watched.Add(int64(f.watching)) > int64(s.cfg.MaxWatched) {
		s.watched.Add(-int64(f.watching))
		s.metrics.Overload.Add(1)
		f.overload()
		return
	}
	f.maxWait = time.Duration(q.MaxWaitMillis) * time.Millisecond
	// The connection's context ends when the client disconnects. That removes the fetch from the
	// purgatory, because no client would read the answer.
	_, refused := s.fetchPurgatory(f.watermark()).TryCompleteElseWatch(c.Context(), f, f.maxWait, keys...)
	if s.notParked(refused) {
		s.watched.Add(-int64(f.watching))
		f.overload()
	}
}

// begin finds the partitions and records the progress that a follower reports with its fetch. It
// returns the keys to wait on, or none if the fetch must be answered at once. ok is false if the
// session has become too large.
func (f *fetch) begin(q *kmsg.FetchRequest) (keys []watchKey, ok bool) {
	if f.session != nil {
		requested, ok := f.session.update(q)
		if f.follower {
			f.recordSessionProgress(q, requested)
		}
		if !ok || f.session.empty() {
			return nil, ok
		}
		return []watchKey{f.session.key()}, true
	}
	f.resolve(q)
	if f.follower {
		f.recordProgress(q)
	}
	keys = make([]watchKey, 0, len(f.parts))
	for i := range f.parts {
		part := &f.parts[i]
		if part.err != nil || part.diverging != nil {
			return nil, true
		}
		keys = append(keys, watchKey{part.p.Key, f.watermark()})
	}
	return keys, true
}

func (f *fetch) watermark() watermark {
	if f.follower {
		return logEndOffset
	}
	return highWatermark
}

// recordProgress records the progress that a follower's fetch reports to the leader.
func (f *fetch) recordProgress(q *kmsg.FetchRequest) {
	i := 0
	for _, rt := range q.Topics {
		for j := range rt.Partitions {
			if part := &f.parts[i]; part.p != nil {
				done := f.recordPart(part, q.ReplicaID, &rt.Partitions[j], nil)
				part.err, part.diverging = done.Err, done.Diverging
			}
			i++
		}
	}
}

// recordSessionProgress is recordProgress for the session partitions that a fetch names.
func (f *fetch) recordSessionProgress(q *kmsg.FetchRequest, requested []*sessionPart) {
	i := 0
	for _, rt := range q.Topics {
		for j := range rt.Partitions {
			if i == len(requested) {
				return // the session has ended
			}
			if part := requested[i]; part.p != nil {
				done := f.recordPart(&part.fetchPart, q.ReplicaID, &rt.Partitions[j], &f.session.lastFetch)
				f.session.mu.Lock()
				part.err, part.diverging = done.Err, done.Diverging
				f.session.mu.Unlock()
			}
			i++
		}
	}
}

func (f *fetch) recordPart(part *fetchPart, follower int32, rp *kmsg.FetchRequestTopicPartition, lastFetch *atomic.Int64) replica.FetchResult {
	done := part.p.FetchedBy(follower, rp.FetchOffset, rp.LogStartOffset, part.epoch, rp.LastFetchedEpoch, f.srv.uptime.Now(), lastFetch)
	if done.Raised {
		f.srv.onHighWatermark(part.p, part.epoch)
	}
	if done.Low >= 0 {
		r := replica.LeaderEpoch{PartitionKey: part.p.Key, Epoch: part.epoch}
		f.srv.deletes.Advance(r, f.srv.deleted(r))
	}
	if done.Rejoining {
		select {
		case f.srv.rejoining <- struct{}{}:
		default: // KeepInSync has a notification that it has not handled yet
		}
	}
	return done
}

// resolve looks up the partitions.
func (f *fetch) resolve(q *kmsg.FetchRequest) {
	n := 0
	for i := range q.Topics {
		n += len(q.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, n)
	for i := range q.Topics {
		rt := &q.Topics[i]
		topic := &fetchTopic{rt.Topic, rt.TopicID}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			epoch := int32(-1)
			if q.Version >= 9 {
				epoch = rp.CurrentLeaderEpoch
			}
			p, err := f.srv.lookup(rt.Topic, rt.TopicID, q.Version >= 13, rp.Partition)
			if err == nil {
				err = f.errorFor(p.Leads(epoch))
			}
			f.parts = append(f.parts, fetchPart{
				topic:    topic,
				index:    rp.Partition,
				epoch:    epoch,
				offset:   rp.FetchOffset,
				maxBytes: int(max(rp.PartitionMaxBytes, 0)),
				p:        p,
				err:      err,
			})
		}
	}
}

// TryComplete reports whether there are enough records to answer, or an error: a client gains more
// from an error than from waiting.
func (f *fetch) TryComplete() bool {
	f.changed, f.readable = time.Time{}, 0
	enough := f.enough()
	if !enough {
		f.changed = time.Time{}
	}
	return enough
}

func (f *fetch) enough() bool {
	if f.session != nil {
		return f.session.enough(f)
	}
	var total int64
	for i := range f.parts {
		n, ok := f.checkPart(&f.parts[i])
		if !ok {
			return true
		}
		total += n
	}
	return total >= f.minBytes
}

// checkPart returns how many bytes a partition can contribute. ok is false if the partition has an
// error, or if the follower must truncate its log.
func (f *fetch) checkPart(part *fetchPart) (n int64, ok bool) {
	if part.err != nil || part.diverging != nil {
		return 0, false
	}
	s := part.p.State(part.offset, part.epoch, f.follower)
	if s.Err != nil {
		// Keep the error: this broker may lead again by the time the answer is built. The client
		// would then be told too early that there are no records.
		part.err = f.errorFor(s.Err)
		return 0, false
	}
	if s.Changed.After(f.arrived) && s.Changed.After(f.changed) {
		f.changed = s.Changed // the fetch waited for this change; older records existed when it arrived
	}
	// Bytes beyond a partition's limit do not count, except that one batch is always sent: a fetch
	// with a limit below the batch's size would otherwise wait forever.
	n = min(s.Readable, max(int64(part.maxBytes), 1))
	f.readable += n
	return n, true
}

// Complete answers the fetch, unless the client has disconnected. It runs on a producer's
// goroutine, on a worker of the purgatory's wheel, or on the goroutine that shuts the purgatory
// down. None of them waits for this client's network: see wire.Reply.
func (f *fetch) Complete(outcome purgatory.Outcome, _ error) {
	f.srv.watched.Add(-int64(f.watching))
	switch {
	case f.follower:
	case outcome == purgatory.Completed && !f.changed.IsZero():
		f.srv.metrics.Woken.Add(1)
	case outcome == purgatory.Expired && f.srv.cfg.OnExpire != nil:
		f.srv.cfg.OnExpire(f.expired())
	}
	completeParked(outcome, f.reply, func() { f.answer(0) }) // with the records there are
}

// ExpiredFetch is a consumer's fetch whose max wait has passed.
type ExpiredFetch struct {
	Arrived time.Time
	MaxWait time.Duration
	Waiting []FetchPosition
}

// FetchPosition is an offset that the fetch waited for.
type FetchPosition struct {
	TopicID [16]byte
	Index   int32
	Offset  int64
}

func (f *fetch) expired() ExpiredFetch {
	e := ExpiredFetch{Arrived: f.arrived, MaxWait: f.maxWait}
	wait := func(part *fetchPart) {
		if part.p != nil {
			e.Waiting = append(e.Waiting, FetchPosition{part.p.Key.Topic, part.p.Key.Index, part.offset})
		}
	}
	for i := range f.parts {
		wait(&f.parts[i])
	}
	if f.session != nil {
		f.session.mu.Lock()
		defer f.session.mu.Unlock()
		for _, part := range f.session.parts {
			wait(&part.fetchPart)
		}
	}
	return e
}
