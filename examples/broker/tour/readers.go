package tour

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
)

// The consumer group of the drive: kgo members that share the steady topic's partitions, join and
// leave. A group delivers at least once: in the end no record may be missing, and duplicates are
// counted.

const (
	readersGroup   = "readers"
	readersSession = 1500 * time.Millisecond
)

// readers is the consumer group.
type readers struct {
	d *drive

	mu         sync.Mutex
	members    []*reader           // guarded by mu
	crashed    []*reader           // crashed; closed at the end; guarded by mu
	seen       map[int32]numberSet // by partition; guarded by mu
	duplicates uint64              // guarded by mu
	wg         sync.WaitGroup
}

// reader is one member.
type reader struct {
	cl     *kgo.Client
	cancel context.CancelFunc
	net    fault.Dialer
}

func startReaders(d *drive, n int) *readers {
	r := &readers{d: d, seen: map[int32]numberSet{}}
	for range n {
		r.join()
	}
	return r
}

// join adds a member.
func (r *readers) join() {
	m := &reader{net: fault.Dialer{Network: r.d.network}}
	cl, err := r.d.client(
		kgo.ConsumerGroup(readersGroup), kgo.ConsumeTopics(steadyTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(readersSession), kgo.HeartbeatInterval(readersSession/5), kgo.RebalanceTimeout(5*time.Second),
		kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.Dialer(m.net.Dial),
	)
	if err != nil {
		r.d.problem("group: %v", err)
		return
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.cl = cl
	r.mu.Lock()
	r.members = append(r.members, m)
	r.mu.Unlock()
	r.wg.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(r.see)
		}
	})
}

// removeOldest removes the oldest member.
func (r *readers) removeOldest() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.members) == 0 {
		return nil
	}
	m := r.members[0]
	r.members = r.members[1:]
	return m
}

// leave makes a member leave the group in an orderly way.
func (r *readers) leave() {
	if m := r.removeOldest(); m != nil {
		m.close()
	}
}

// crash cuts off a member: the group learns of it when the member's session expires.
func (r *readers) crash() {
	m := r.removeOldest()
	if m == nil {
		return
	}
	m.net.Break()
	m.cancel()
	r.mu.Lock()
	r.crashed = append(r.crashed, m)
	r.mu.Unlock()
}

func (m *reader) close() {
	m.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = m.cl.LeaveGroupContext(ctx) // commits first; a crashed one cannot
	m.cl.Close()
}

func (r *readers) see(record *kgo.Record) {
	n, ok := recordNumber(record.Value)
	if !ok {
		r.d.problem("group: %s/%d at %d holds a record that no producer sent", record.Topic, record.Partition, record.Offset)
		return
	}
	r.d.ledger.partition(record.Topic, record.Partition).checkOffset(n, record.Offset)
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.seen[record.Partition]
	if !set.add(n) {
		r.duplicates++
	}
	r.seen[record.Partition] = set
}

// end waits until the group has seen every acknowledged record, and closes it.
func (r *readers) end(timeout time.Duration) {
	for end := time.Now().Add(timeout); r.missing() > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if n := r.missing(); n > 0 && r.d.load.Members > 0 {
		r.d.problem("group: %d records never came", n)
	}
	var closing sync.WaitGroup
	r.mu.Lock()
	all := slices.Concat(r.members, r.crashed)
	r.members, r.crashed = nil, nil
	r.mu.Unlock()
	for _, m := range all {
		closing.Go(m.close)
	}
	closing.Wait()
	r.wg.Wait()
}

// missing returns the number of acknowledged records that the group has not seen.
func (r *readers) missing() (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.d.ledger.topics[steadyTopic] {
		n += r.d.ledger.partition(steadyTopic, int32(i)).missing(r.seen[int32(i)])
	}
	return n
}

func (r *readers) duplicateCount() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.duplicates
}
