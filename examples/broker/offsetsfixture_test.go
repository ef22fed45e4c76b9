package main

import (
	"runtime"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeLog is the log of a partition of offsets, as server.replicate shows it to a
// shard. Batches are appended at once; when they are replicated is the test's to
// say.
type fakeLog struct {
	held  bool // replication waits for release
	async bool // done is called by another goroutine
	fails *kerr.Error

	mu      sync.Mutex
	epoch   int32         // guarded by mu
	batches []fakeBatch   // guarded by mu
	next    int64         // guarded by mu
	written int           // bytes ever; guarded by mu
	waiting []*fakeAppend // guarded by mu
	calls   int           // of other goroutines, under way; guarded by mu
}

type fakeBatch struct {
	base int64
	raw  []byte
}

type fakeAppend struct {
	base int64
	done func(base int64, err *kerr.Error)
}

// lead begins a leader's reign; those before it are refused from now on.
func (l *fakeLog) lead(epoch int32) (replicate func(batch []byte, done func(base int64, err *kerr.Error))) {
	l.mu.Lock()
	l.epoch = epoch
	l.mu.Unlock()
	return func(batch []byte, done func(base int64, err *kerr.Error)) {
		base, err := l.append(epoch, batch, done)
		switch {
		case err != nil:
			done(-1, err)
		case l.held:
		case l.async:
			go func() {
				for range 20 * (base % 5) { // so that they come in another order
					runtime.Gosched()
				}
				done(base, nil)
				l.mu.Lock()
				l.calls--
				l.mu.Unlock()
			}()
		default:
			done(base, nil)
		}
	}
}

func (l *fakeLog) append(epoch int32, batch []byte, done func(base int64, err *kerr.Error)) (int64, *kerr.Error) {
	raw := slices.Clone(batch)
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return -1, kerr.NotLeaderForPartition
	}
	if l.fails != nil {
		return -1, l.fails
	}
	base := l.next
	placeBatch(raw, base, epoch)
	l.batches = append(l.batches, fakeBatch{base, raw})
	l.next += int64(b.NumRecords)
	l.written += len(raw)
	if l.held {
		l.waiting = append(l.waiting, &fakeAppend{base, done})
	} else if l.async {
		l.calls++
	}
	return base, nil
}

// release ends the nth append that waits, and returns where it is in the log.
func (l *fakeLog) release(n int, err *kerr.Error) (base int64) {
	l.mu.Lock()
	a := l.waiting[n]
	l.waiting = slices.Delete(l.waiting, n, n+1)
	l.mu.Unlock()
	a.done(a.base, err)
	return a.base
}

// waits is how many appends wait to be replicated.
func (l *fakeLog) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// settle waits for the calls of other goroutines.
func (l *fakeLog) settle() {
	under := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.calls > 0
	}
	for under() {
		runtime.Gosched()
	}
}

func (l *fakeLog) deleteBefore(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = slices.DeleteFunc(l.batches, func(b fakeBatch) bool { return b.base < offset })
}

// truncate cuts off what lies at offset and beyond: it was not replicated, and
// the next leader does not have it.
func (l *fakeLog) truncate(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = slices.DeleteFunc(l.batches, func(b fakeBatch) bool { return b.base >= offset })
	l.next = min(l.next, offset)
}

func (l *fakeLog) records() (batches [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		batches = append(batches, b.raw)
	}
	return batches
}

// The requests of these tests.

// commitReq commits an offset of t's partition 0.
func commitReq(group string, generation int32, member string, offset int64) *kmsg.OffsetCommitRequest {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 9, group, generation, member
	return addCommit(q, "t", 0, offset, "")
}

func addCommit(q *kmsg.OffsetCommitRequest, topic string, partition int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, offset, 7, &metadata
	if n := len(q.Topics); n == 0 || q.Topics[n-1].Topic != topic {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		q.Topics = append(q.Topics, rt)
	}
	rt := &q.Topics[len(q.Topics)-1]
	rt.Partitions = append(rt.Partitions, rp)
	return q
}

// commitCode is that of a commit's first partition.
func commitCode(resp *kmsg.OffsetCommitResponse) int16 { return resp.Topics[0].Partitions[0].ErrorCode }

// offsetFetchReq asks for all offsets of a group, or for those of t's partitions.
func offsetFetchReq(version int16, group string, partitions ...int32) *kmsg.OffsetFetchRequest {
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Version = version
	if version >= 8 {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = group
		if partitions != nil {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = "t", partitions
			rg.Topics = append(rg.Topics, rt)
		}
		q.Groups = append(q.Groups, rg)
		return q
	}
	q.Group = group
	if partitions != nil {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = "t", partitions
		q.Topics = append(q.Topics, rt)
	}
	return q
}

func describeReq(groups ...string) *kmsg.DescribeGroupsRequest {
	q := kmsg.NewPtrDescribeGroupsRequest()
	q.Version, q.Groups = 5, groups
	return q
}

func listReq(states ...string) *kmsg.ListGroupsRequest {
	q := kmsg.NewPtrListGroupsRequest()
	q.Version, q.StatesFilter = 5, states
	return q
}

func deleteReq(groups ...string) *kmsg.DeleteGroupsRequest {
	q := kmsg.NewPtrDeleteGroupsRequest()
	q.Version, q.Groups = 2, groups
	return q
}
