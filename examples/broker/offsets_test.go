package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offset is what a group has committed of t's partition, -1 for nothing.
func (b *groupBench) offset(group string, partition int32) int64 {
	b.t.Helper()
	a := b.send(offsetFetchReq(8, group, partition)).answer().(*kmsg.OffsetFetchResponse)
	requireCode(b.t, nil, a.Groups[0].ErrorCode)
	return a.Groups[0].Topics[0].Partitions[0].Offset
}

func (b *groupBench) commit(group string, partition int32, offset int64) *sent {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group = 9, group
	return b.send(addCommit(q, "t", partition, offset, ""))
}

func TestCommitIsVisibleOnceReplicated(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.log.held = true
		first := b.commit("g", 0, 10)
		first.requireParked()
		require.Equal(t, int64(-1), b.offset("g", 0))
		b.log.release(0, nil)
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](first)))
		require.Equal(t, int64(10), b.offset("g", 0))

		failed := b.commit("g", 0, 20)
		require.Equal(t, int64(10), b.offset("g", 0))
		b.log.release(0, kerr.RequestTimedOut)
		requireCode(t, kerr.RequestTimedOut, commitCode(answered[*kmsg.OffsetCommitResponse](failed)))
		require.Equal(t, int64(10), b.offset("g", 0))
	})
}

// The log's order counts, in whatever order commits end.
func TestCommitsEndInAnyOrder(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.log.held = true
		b.commit("g", 0, 1)
		b.commit("g", 0, 2)
		b.log.release(1, nil)
		require.Equal(t, int64(2), b.offset("g", 0))
		b.log.release(0, nil)
		require.Equal(t, int64(2), b.offset("g", 0))
	})
}

func TestCommitErrorsOfTheLog(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		for is, want := range map[*kerr.Error]*kerr.Error{
			kerr.NotLeaderForPartition:        kerr.NotCoordinator,
			kerr.NotEnoughReplicas:            kerr.CoordinatorNotAvailable,
			kerr.NotEnoughReplicasAfterAppend: kerr.CoordinatorNotAvailable,
			kerr.UnknownTopicOrPartition:      kerr.CoordinatorNotAvailable,
			kerr.RequestTimedOut:              kerr.RequestTimedOut,
			kerr.MessageTooLarge:              kerr.InvalidCommitOffsetSize,
		} {
			b.log.fails = is
			requireCode(t, want, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 0, 1))))
			require.Zero(t, b.co.groups.Load(), "nothing was committed")
		}
	})
}

func TestWhoMayCommit(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		ids, generation := b.stableGroup("g", 1)
		version := func(v int16, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitRequest { q.Version = v; return q }
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("simple", 0, 1))))
		for name, test := range map[string]struct {
			req  *kmsg.OffsetCommitRequest
			want *kerr.Error
		}{
			"a member":                        {commitReq("g", generation, ids[0], 1), nil},
			"of an older generation":          {commitReq("g", generation-1, ids[0], 1), kerr.IllegalGeneration},
			"a stranger":                      {commitReq("g", generation, "stranger", 1), kerr.UnknownMemberID},
			"no member, while there are some": {commitReq("g", -1, "", 1), kerr.UnknownMemberID},
			"a member that says no more":      {commitReq("g", -1, ids[0], 1), kerr.IllegalGeneration},
			"no member of nothing":            {commitReq("simple", -1, "", 2), nil},
			"with a name it made up":          {commitReq("simple", -1, "me", 2), nil},
			"member of an empty group":        {commitReq("simple", 1, "stranger", 1), kerr.UnknownMemberID},
			"member of no group":              {version(8, commitReq("none", 1, "stranger", 1)), kerr.IllegalGeneration},
			"in the newer version":            {commitReq("none", 1, "stranger", 1), kerr.GroupIDNotFound},
			"no group id":                     {commitReq("", -1, "", 1), nil}, // as ever in Kafka
			"a long group id":                 {commitReq(strings.Repeat("x", 256), -1, "", 1), kerr.InvalidGroupID},
			"no such topic":                   {addCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "none", 0, 1, ""), kerr.UnknownTopicOrPartition},
			"no such partition":               {addCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", 100, 1, ""), kerr.UnknownTopicOrPartition},
			"a negative partition":            {addCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", -1, 1, ""), kerr.UnknownTopicOrPartition},
			"metadata too large":              {addCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", 0, 1, strings.Repeat("x", 4097)), kerr.OffsetMetadataTooLarge},
			"metadata that fits":              {addCommit(version(9, &kmsg.OffsetCommitRequest{Group: "simple", Generation: -1}), "t", 0, 1, strings.Repeat("x", 4096)), nil},
		} {
			got := answered[*kmsg.OffsetCommitResponse](b.send(test.req))
			require.Equal(t, test.want, kerrOf(commitCode(got)), name)
		}

		b.send(joinReq(9, "g", ids[0])) // a round that it is alone in
		requireCode(t, kerr.RebalanceInProgress, commitCode(answered[*kmsg.OffsetCommitResponse](b.send(commitReq("g", generation+1, ids[0], 1)))))
		b.send(syncReq("g", generation+1, ids[0]))
		b.send(joinReq(9, "g", b.newID("g")))
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.send(commitReq("g", generation+1, ids[0], 1)))))
	})
}

// One partition's error is no other's.
func TestCommitOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		q := kmsg.NewPtrOffsetCommitRequest()
		q.Version, q.Group = 9, "g"
		addCommit(q, "t", 0, 1, "m")
		addCommit(q, "t", 200, 2, "")
		addCommit(q, "none", 0, 3, "")
		addCommit(q, "t", 1, 4, "")
		addCommit(q, "t", 1, 5, "")
		a := answered[*kmsg.OffsetCommitResponse](b.send(q))
		unknown := kerr.UnknownTopicOrPartition.Code
		require.Equal(t, []int16{0, unknown}, []int16{a.Topics[0].Partitions[0].ErrorCode, a.Topics[0].Partitions[1].ErrorCode})
		require.Equal(t, unknown, a.Topics[1].Partitions[0].ErrorCode)
		require.Equal(t, int64(1), b.offset("g", 0))
		require.Equal(t, int64(5), b.offset("g", 1), "the later of two")

		all := answered[*kmsg.OffsetFetchResponse](b.send(offsetFetchReq(7, "g")))
		require.Len(t, all.Topics, 1)
		require.Len(t, all.Topics[0].Partitions, 2)
		first := all.Topics[0].Partitions[0]
		require.Equal(t, "m", *first.Metadata)
		require.Equal(t, int32(7), first.LeaderEpoch)
	})
}

func TestOffsetFetch(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		b.commit("g", 3, 33)
		for version := int16(0); version <= 7; version++ {
			a := answered[*kmsg.OffsetFetchResponse](b.send(offsetFetchReq(version, "g", 3, 4, 3)))
			requireCode(t, nil, a.ErrorCode)
			require.Len(t, a.Topics[0].Partitions, 2, "one that is named again is answered once")
			require.Equal(t, int64(33), a.Topics[0].Partitions[0].Offset)
			require.Equal(t, int64(-1), a.Topics[0].Partitions[1].Offset)
		}
		for version := int16(8); version <= 9; version++ {
			q := offsetFetchReq(version, "g", 3)
			q.Groups = append(q.Groups, offsetFetchReq(version, "none", 3).Groups[0], offsetFetchReq(version, "g").Groups[0])
			a := answered[*kmsg.OffsetFetchResponse](b.send(q))
			require.Len(t, a.Groups, 2)
			require.Equal(t, int64(33), a.Groups[0].Topics[0].Partitions[0].Offset)
			requireCode(t, nil, a.Groups[1].ErrorCode)
			require.Equal(t, int64(-1), a.Groups[1].Topics[0].Partitions[0].Offset)
		}
		require.Empty(t, answered[*kmsg.OffsetFetchResponse](b.send(offsetFetchReq(7, "none"))).Topics)
		b.co.resign(0, 2)
		for version := int16(0); version <= 7; version++ {
			a := answered[*kmsg.OffsetFetchResponse](b.send(offsetFetchReq(version, "g", 3)))
			if version < 2 {
				requireCode(t, kerr.NotCoordinator, a.Topics[0].Partitions[0].ErrorCode)
			} else {
				requireCode(t, kerr.NotCoordinator, a.ErrorCode)
			}
		}
		requireCode(t, kerr.NotCoordinator, answered[*kmsg.OffsetFetchResponse](b.send(offsetFetchReq(9, "g"))).Groups[0].ErrorCode)
	})
}

func TestOffsetsAreBounded(t *testing.T) {
	t.Parallel()
	size := offsetSize("g", "t", "")
	inGroupBench(t, func(b *groupBench) {
		for i := range int32(3) {
			requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", i, 1))))
		}
		requireCode(t, kerr.InvalidCommitOffsetSize, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, 1))))
		requireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](b.send(deleteReq("g"))).Groups[0].ErrorCode)
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, 1))))
		for i := range int64(10) { // again and again takes no more
			requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, i))))
		}
	}, func(c *groupConfig) { c.maxOffsetBytes = 3 * size })
}

// A snapshot is taken while commits are on their way: one is appended and not
// replicated, one has come after. The snapshot must hold the first and lie before
// the second, or to load the log would undo one of them.
func TestSnapshotAmidCommits(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 0, 10))))
		b.log.held = true
		before := b.commit("g", 0, 20) // the log is long enough now: a snapshot is due
		after := b.commit("g", 0, 30)
		require.Equal(t, 1, b.log.waits(), "the snapshot waits for the first, and the second for the snapshot")
		b.log.release(0, nil)
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](before)))
		require.Equal(t, 2, b.log.waits(), "the snapshot and the second are in the log")
		require.Len(t, b.log.records(), 4)
		b.log.release(1, nil)
		requireCode(t, nil, commitCode(answered[*kmsg.OffsetCommitResponse](after)))
		require.Len(t, b.log.records(), 4, "nothing is deleted for a snapshot that could get lost")
		b.log.release(0, nil)
		require.Len(t, b.log.records(), 2)
		b.co.resign(0, 2)
		b.log.held = false
		b.lead(2)
		require.Equal(t, int64(30), b.offset("g", 0))

		// The same with what lies in the log up to the snapshot alone.
		b.log.truncate(b.log.batches[1].base)
		b.co.resign(0, 3)
		b.lead(3)
		require.Equal(t, int64(20), b.offset("g", 0))
	}, func(c *groupConfig) { c.offsetsCompactBytes = 150 })
}

// What is written anew is never more than what was written since the last time,
// and the log stays as short as that.
func TestCompactionKeepsTheLogShort(t *testing.T) {
	t.Parallel()
	inGroupBench(t, func(b *groupBench) {
		const live = 50
		size := func() (n int) {
			for _, raw := range b.log.records() {
				n += len(raw)
			}
			return n
		}
		for i := range int64(live) {
			b.commit(fmt.Sprint(i), 0, 0)
		}
		bound := 3*size() + int(b.co.cfg.offsetsCompactBytes)
		for i := range int64(5000) {
			b.commit(fmt.Sprint(i%live), 0, i)
			require.Less(t, size(), bound)
		}
		b.co.resign(0, 2)
		b.lead(2)
		for i := range int64(live) {
			require.Equal(t, 5000-live+i, b.offset(fmt.Sprint(i), 0))
		}
		// And nothing live at all is a snapshot, too.
		for i := range int64(live) {
			requireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](b.send(deleteReq(fmt.Sprint(i)))).Groups[0].ErrorCode)
		}
		for i := range int64(300) {
			b.commit("x", 0, i)
			answered[*kmsg.DeleteGroupsResponse](b.send(deleteReq("x")))
			require.Less(t, size(), bound)
		}
		b.co.resign(0, 3)
		b.lead(3)
		require.Zero(t, b.co.groups.Load())
	}, func(c *groupConfig) { c.offsetsCompactBytes = 2000 })
}

// offsetsModel knows what may be read: the state after the latest event that was
// acknowledged, in the order in which they were sent. After a move it may also be
// that of a later one which was not: it may be in the log.
type offsetsModel struct {
	t      *testing.T
	b      *groupBench
	events map[offsetsModelKey][]offsetsModelEvent
	open   []offsetsModelRequest
}

type offsetsModelKey struct {
	group     string
	partition int32
}

type offsetsModelEvent struct {
	n      int   // of the request, in the order they were sent
	offset int64 // -1: deleted
	acked  bool
}

type offsetsModelRequest struct {
	n      int
	key    offsetsModelKey // partition -1: of all, a deletion
	offset int64
	sent   *sent
}

// visible is the state after the latest acknowledged event before the nth.
func (m *offsetsModel) visible(k offsetsModelKey, n int) int64 {
	visible := int64(-1)
	for _, e := range m.events[k] {
		if e.acked && e.n < n {
			visible = e.offset
		}
	}
	return visible
}

// note takes the answers that have come.
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
					e.acked = commitCode(a) == 0
				}
			}
		case *kmsg.DeleteGroupsResponse:
			// Only what was there is deleted. All requests before this one have ended.
			for p := range int32(3) {
				if k := (offsetsModelKey{r.key.group, p}); m.visible(k, r.n) >= 0 {
					m.insert(k, offsetsModelEvent{r.n, -1, a.Groups[0].ErrorCode == 0})
				}
			}
		}
	}
	m.open = left
}

// insert puts an event in its place: later ones may have been sent since.
func (m *offsetsModel) insert(k offsetsModelKey, e offsetsModelEvent) {
	list := slices.Concat(m.events[k], []offsetsModelEvent{e})
	for i := len(list) - 1; i > 0 && list[i-1].n > list[i].n; i-- {
		list[i-1], list[i] = list[i], list[i-1]
	}
	m.events[k] = list
}

func (m *offsetsModel) requireVisible() {
	for k := range m.events {
		require.Equal(m.t, m.visible(k, math.MaxInt), m.b.offset(k.group, k.partition), "%v: %v", k, m.events[k])
	}
}

// requireLoaded is after a move, with all requests answered; it goes on from what
// was loaded.
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
	for seed := range uint64(300) {
		b := newGroupBench(t, func(c *groupConfig) { c.offsetsCompactBytes = 700 })
		b.log.held = true
		runOffsetsModel(t, b, rand.New(rand.NewPCG(seed, 0)))
		for b.log.waits() > 0 {
			b.log.release(0, kerr.NotLeaderForPartition)
		}
		require.NoError(t, b.co.shutdown(t.Context()))
		require.Zero(t, b.co.offsetBytes.used.Load())
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runOffsetsModel(t *testing.T, b *groupBench, rng *rand.Rand) {
	m := &offsetsModel{t: t, b: b, events: map[offsetsModelKey][]offsetsModelEvent{}}
	committed := int64(0) // in the log: whatever happens, it stays up to here
	epoch := int32(1)
	for n := 1; n <= 150; n++ {
		k := offsetsModelKey{fmt.Sprint(rng.IntN(3)), rng.Int32N(3)}
		switch r := rng.IntN(100); {
		case r < 45:
			s := b.commit(k.group, k.partition, int64(n))
			m.events[k] = append(m.events[k], offsetsModelEvent{n: n, offset: int64(n)})
			m.open = append(m.open, offsetsModelRequest{n, k, int64(n), s})
		case r < 50:
			m.open = append(m.open, offsetsModelRequest{n, offsetsModelKey{k.group, -1}, -1, b.send(deleteReq(k.group))})
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
			b.co.resign(0, epoch+1)
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
			committed = b.log.next // a shard that is read opens once that is replicated
			m.requireLoaded()
		}
		m.note()
		m.requireVisible()
	}
}

// truncateAt cuts the log somewhere behind what is committed.
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
