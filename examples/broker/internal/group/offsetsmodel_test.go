package group

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// offsetsModel knows which offsets may be read: the state after the latest acknowledged event, in
// the order of sending. After a move it may also be the state after a later event that was not
// acknowledged, because the log may have it.
type offsetsModel struct {
	t      *testing.T
	b      *fixture
	events map[offsetsModelKey][]offsetsModelEvent
	open   []offsetsModelRequest
}

type offsetsModelKey struct {
	group     string
	partition int32
}

type offsetsModelEvent struct {
	n      int   // number of the request, in the order of sending
	offset int64 // -1: deleted
	acked  bool
}

type offsetsModelRequest struct {
	n      int
	key    offsetsModelKey // partition -1: a deletion of the whole group
	offset int64
	sent   *sent
}

// visible returns the state after the latest acknowledged event before the nth.
func (m *offsetsModel) visible(k offsetsModelKey, n int) int64 {
	visible := int64(-1)
	for _, e := range m.events[k] {
		if e.acked && e.n < n {
			visible = e.offset
		}
	}
	return visible
}

// note records the answers that have arrived.
func (m *offsetsModel) note() {
	left := m.open[:0]
	for _, r := range m.open {
		a := r.sent.answer()
		if a == nil {
			left = append(left, r)
			continue
		}
		switch a := a.(type) {
		case *kmsg.OffsetCommitResponse:
			for i := range m.events[r.key] {
				if e := &m.events[r.key][i]; e.n == r.n {
					e.acked = kafkatest.CommitCode(a) == 0
				}
			}
		case *kmsg.DeleteGroupsResponse:
			// Only existing offsets are deleted. All earlier requests have been answered.
			for p := range int32(3) {
				if k := (offsetsModelKey{r.key.group, p}); m.visible(k, r.n) >= 0 {
					m.insert(k, offsetsModelEvent{r.n, -1, a.Groups[0].ErrorCode == 0})
				}
			}
		}
	}
	m.open = left
}

// insert adds an event at its place in the order: later ones may have been sent since.
func (m *offsetsModel) insert(k offsetsModelKey, e offsetsModelEvent) {
	list := slices.Concat(m.events[k], []offsetsModelEvent{e})
	for i := len(list) - 1; i > 0 && list[i-1].n > list[i].n; i-- {
		list[i-1], list[i] = list[i], list[i-1]
	}
	m.events[k] = list
}

// modelGroups is the number of groups; each has three partitions.
const modelGroups = 3

func (m *offsetsModel) requireVisible() {
	for g := range modelGroups {
		group := fmt.Sprint(g)
		for p, got := range m.b.offsets(group, 0, 1, 2) {
			if k := (offsetsModelKey{group, p}); m.visible(k, math.MaxInt) != got {
				require.Fail(m.t, "not what was acknowledged last", "%v is %d: %v", k, got, m.events[k])
			}
		}
	}
}

// requireLoaded checks the state after a move, when all requests are answered. The model continues
// from the loaded state.
func (m *offsetsModel) requireLoaded() {
	for k, events := range m.events {
		allowed := []int64{-1}
		for _, e := range events {
			if e.acked {
				allowed = allowed[:0]
			}
			allowed = append(allowed, e.offset)
		}
		got := m.b.offset(k.group, k.partition)
		require.Contains(m.t, allowed, got, "%v: %v", k, events)
		m.events[k] = []offsetsModelEvent{{0, got, true}}
	}
}

func TestOffsetsAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		b := newFixture(t, func(c *Config) {
			c.OffsetsCompactBytes = 700
			if seed%2 == 1 {
				c.MaxBatch = 200 // bytes: a snapshot has several batches
			}
		})
		b.log.held = true
		runOffsetsModel(t, b, rand.New(rand.NewPCG(seed, 0)))
		for b.log.waits() > 0 {
			b.log.release(0, kerr.NotLeaderForPartition)
		}
		require.NoError(t, b.co.Shutdown(t.Context()))
		require.Zero(t, b.co.offsetBytes.used.Load())
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runOffsetsModel(t *testing.T, b *fixture, rng *rand.Rand) {
	m := &offsetsModel{t: t, b: b, events: map[offsetsModelKey][]offsetsModelEvent{}}
	committed := int64(0) // replicated end of the log: no truncation goes below it
	epoch := int32(1)
	for n := 1; n <= 750; n++ {
		k := offsetsModelKey{fmt.Sprint(rng.IntN(modelGroups)), rng.Int32N(3)}
		switch r := rng.IntN(100); {
		case r < 45:
			s := b.commit(k.group, k.partition, int64(n))
			m.events[k] = append(m.events[k], offsetsModelEvent{n: n, offset: int64(n)})
			m.open = append(m.open, offsetsModelRequest{n, k, int64(n), s})
		case r < 50:
			m.open = append(m.open, offsetsModelRequest{n, offsetsModelKey{k.group, -1}, -1, b.send(kafkatest.DeleteGroups(k.group))})
		case r < 97:
			if waits := b.log.waits(); waits > 0 {
				var err *kerr.Error
				if rng.IntN(5) == 0 {
					err = kerr.RequestTimedOut
				}
				at := b.log.release(rng.IntN(waits), err)
				if err == nil {
					committed = max(committed, at+1)
				}
			}
		default:
			b.co.Resign(0, epoch+1)
			for b.log.waits() > 0 {
				b.log.release(0, kerr.NotLeaderForPartition)
			}
			m.note()
			require.Empty(t, m.open)
			if rng.IntN(2) == 0 {
				b.log.truncateAt(committed, rng)
			}
			epoch++
			b.lead(epoch)
			committed = b.log.next // a shard opens once the log it has read is replicated
			m.requireLoaded()
		}
		m.note()
		m.requireVisible()
	}
}

// truncateAt truncates the log at a random batch after the committed end.
func (l *fakeLog) truncateAt(committed int64, rng *rand.Rand) {
	l.mu.Lock()
	var cuts []int64
	for _, b := range l.batches {
		if b.base >= committed {
			cuts = append(cuts, b.base)
		}
	}
	l.mu.Unlock()
	if len(cuts) > 0 {
		l.truncate(cuts[rng.IntN(len(cuts))])
	}
}
