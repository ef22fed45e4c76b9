package group

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeLog is the store of a coordinator whose offsets topic has one partition. Batches are appended
// at once; the test decides when they are replicated.
type fakeLog struct {
	held  bool // replication waits for release
	most  int  // limit of bytes that wait for replication; 0: no limit
	async bool // done is called by another goroutine
	fails *kerr.Error
	await func() bool // result of AwaitReplicated; nil: true

	mu      sync.Mutex
	epoch   int32         // guarded by mu
	batches []fakeBatch   // guarded by mu
	next    int64         // guarded by mu
	written int           // bytes written in total; guarded by mu
	waiting []*fakeAppend // guarded by mu
	calls   int           // done calls in progress in other goroutines; guarded by mu
}

type fakeBatch struct {
	base int64
	raw  []byte
}

type fakeAppend struct {
	base int64
	size int
	done func(base int64, err *kerr.Error)
}

func (l *fakeLog) uncommittedLocked() (sum int) {
	for _, a := range l.waiting {
		sum += a.size
	}
	return sum
}

// lead begins a leader epoch; earlier ones are refused from now on.
func (l *fakeLog) lead(epoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch = epoch
}

// PartitionsOf knows one topic, t.
func (l *fakeLog) PartitionsOf(topic string) int {
	if topic == "t" {
		return 100
	}
	return 0
}

func (l *fakeLog) AwaitReplicated(context.Context, int32, int32, int64) bool {
	return l.await == nil || l.await()
}

func (l *fakeLog) Replicate(_, epoch int32, batch []byte, _ time.Duration, done func(base int64, err *kerr.Error)) {
	base, err := l.append(epoch, batch, done)
	switch {
	case err != nil:
		done(-1, err)
	case l.held:
	case l.async:
		go func() {
			for range 20 * (base % 5) { // so that the calls come in another order
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
	if l.most > 0 && l.uncommittedLocked() > l.most {
		return -1, kerr.NotEnoughReplicas
	}
	base := l.next
	binary.BigEndian.PutUint64(raw, uint64(base))
	l.batches = append(l.batches, fakeBatch{base, raw})
	l.next += int64(b.NumRecords)
	l.written += len(raw)
	if l.held {
		l.waiting = append(l.waiting, &fakeAppend{base, len(raw), done})
	} else if l.async {
		l.calls++
	}
	return base, nil
}

// release completes the nth waiting append, and returns its offset in the log.
func (l *fakeLog) release(n int, err *kerr.Error) (base int64) {
	l.mu.Lock()
	a := l.waiting[n]
	l.waiting = slices.Delete(l.waiting, n, n+1)
	l.mu.Unlock()
	a.done(a.base, err)
	return a.base
}

// waits returns the number of appends that wait for replication.
func (l *fakeLog) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// waitForCalls waits for the done calls in other goroutines.
func (l *fakeLog) waitForCalls() {
	under := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.calls > 0
	}
	for under() {
		runtime.Gosched()
	}
}

func (l *fakeLog) DeleteBefore(_, _ int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = slices.DeleteFunc(l.batches, func(b fakeBatch) bool { return b.base < offset })
}

// truncate removes the batches at offset and beyond: they were not replicated, and the next leader
// does not have them.
func (l *fakeLog) truncate(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = slices.DeleteFunc(l.batches, func(b fakeBatch) bool { return b.base >= offset })
	l.next = min(l.next, offset)
}

func (l *fakeLog) Records(int32) (batches [][]byte, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		batches = append(batches, b.raw)
	}
	return batches, l.next
}

func (l *fakeLog) live() [][]byte { batches, _ := l.Records(0); return batches }

// The requests of these tests.
