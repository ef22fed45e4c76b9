package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// offset returns a group's committed offset of t's partition, -1 for none.
func (b *fixture) offset(group string, partition int32) int64 {
	b.t.Helper()
	return b.offsets(group, partition)[partition]
}

// offsets returns a group's committed offsets, by partition.
func (b *fixture) offsets(group string, partitions ...int32) map[int32]int64 {
	a := b.send(kafkatest.OffsetFetch(8, group, partitions...)).answer().(*kmsg.OffsetFetchResponse)
	kafkatest.RequireCode(b.t, nil, a.Groups[0].ErrorCode)
	offsets := map[int32]int64{}
	for _, p := range a.Groups[0].Topics[0].Partitions {
		offsets[p.Partition] = p.Offset
	}
	return offsets
}

func (b *fixture) commit(group string, partition int32, offset int64) *sent {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group = 9, group
	return b.send(kafkatest.AddCommit(q, "t", partition, offset, ""))
}

func TestCommitIsVisibleOnceReplicated(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.log.held = true
		first := b.commit("g", 0, 10)
		first.requireParked()
		require.Equal(t, int64(-1), b.offset("g", 0))
		b.log.release(0, nil)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](first)))
		require.Equal(t, int64(10), b.offset("g", 0))

		failed := b.commit("g", 0, 20)
		require.Equal(t, int64(10), b.offset("g", 0))
		b.log.release(0, kerr.RequestTimedOut)
		kafkatest.RequireCode(t, kerr.RequestTimedOut, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](failed)))
		require.Equal(t, int64(10), b.offset("g", 0))
	})
}

// The order of the log counts, in whatever order commits complete.
func TestCommitsEndInAnyOrder(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.log.held = true
		b.commit("g", 0, 1)
		b.commit("g", 0, 2)
		b.log.release(1, nil)
		require.Equal(t, int64(2), b.offset("g", 0))
		b.log.release(0, nil)
		require.Equal(t, int64(2), b.offset("g", 0))
	})
}

// The log has commits in the order in which the group has accepted them. A member's commit must not
// come after one of the next owner of its partition.
func TestCommitsAreWrittenInTheGroupsOrder(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.commit("g", 0, 1)
		g := b.group("g")
		hold := func(offset int64) (postpone func()) {
			s := b.unhandled(kafkatest.Commit("g", -1, "", offset))
			q := s.req.(*kmsg.OffsetCommitRequest)
			m := newCommit(b.co, q, s)
			m.g = g
			return g.changeHeld(func(l *deferred) { require.Nil(t, g.commitLocked(q, m, l)) })
		}
		first, second := hold(2), hold(3)
		second()
		first()
		require.Equal(t, int64(3), b.offset("g", 0))
	})
}

func TestCommitErrorsOfTheLog(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		for is, want := range map[*kerr.Error]*kerr.Error{
			kerr.NotLeaderForPartition:        kerr.NotCoordinator,
			kerr.NotEnoughReplicas:            kerr.CoordinatorNotAvailable,
			kerr.NotEnoughReplicasAfterAppend: kerr.CoordinatorNotAvailable,
			kerr.UnknownTopicOrPartition:      kerr.CoordinatorNotAvailable,
			kerr.RequestTimedOut:              kerr.RequestTimedOut,
			kerr.MessageTooLarge:              kerr.InvalidCommitOffsetSize,
		} {
			b.log.fails = is
			kafkatest.RequireCode(t, want, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 0, 1))))
			require.Zero(t, b.co.groups.Load(), "nothing was committed")
		}
	})
}

func TestMembersThatMayCommit(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, generation := b.stableGroup("g", 1)
		version := func(v int16, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitRequest { q.Version = v; return q }
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("simple", 0, 1))))
		for name, test := range map[string]struct {
			req  *kmsg.OffsetCommitRequest
			want *kerr.Error
		}{
			"a member":                        {kafkatest.Commit("g", generation, ids[0], 1), nil},
			"of an older generation":          {kafkatest.Commit("g", generation-1, ids[0], 1), kerr.IllegalGeneration},
			"a stranger":                      {kafkatest.Commit("g", generation, "stranger", 1), kerr.UnknownMemberID},
			"no member, while there are some": {kafkatest.Commit("g", -1, "", 1), kerr.UnknownMemberID},
			"a member that says no more":      {kafkatest.Commit("g", -1, ids[0], 1), kerr.IllegalGeneration},
			"no member of nothing":            {kafkatest.Commit("simple", -1, "", 2), nil},
			"with a name it made up":          {kafkatest.Commit("simple", -1, "me", 2), nil},
			"member of an empty group":        {kafkatest.Commit("simple", 1, "stranger", 1), kerr.UnknownMemberID},
			"member of no group":              {version(8, kafkatest.Commit("none", 1, "stranger", 1)), kerr.IllegalGeneration},
			"in the newer version":            {kafkatest.Commit("none", 1, "stranger", 1), kerr.GroupIDNotFound},
			"no group id":                     {kafkatest.Commit("", -1, "", 1), nil}, // as always in Kafka
			"a long group id":                 {kafkatest.Commit(strings.Repeat("x", 256), -1, "", 1), kerr.InvalidGroupID},
			"no such topic":                   {kafkatest.AddCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "none", 0, 1, ""), kerr.UnknownTopicOrPartition},
			"no such partition":               {kafkatest.AddCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", 100, 1, ""), kerr.UnknownTopicOrPartition},
			"a negative partition":            {kafkatest.AddCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", -1, 1, ""), kerr.UnknownTopicOrPartition},
			"metadata too large":              {kafkatest.AddCommit(version(9, &kmsg.OffsetCommitRequest{Group: "g", Generation: -1}), "t", 0, 1, strings.Repeat("x", 4097)), kerr.OffsetMetadataTooLarge},
			"metadata that fits":              {kafkatest.AddCommit(version(9, &kmsg.OffsetCommitRequest{Group: "simple", Generation: -1}), "t", 0, 1, strings.Repeat("x", 4096)), nil},
		} {
			got := answered[*kmsg.OffsetCommitResponse](b.send(test.req))
			require.Equal(t, test.want, kerrOf(kafkatest.CommitCode(got)), name)
		}

		b.send(kafkatest.Join(9, "g", ids[0])) // a round with no other member
		kafkatest.RequireCode(t, kerr.RebalanceInProgress, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation+1, ids[0], 1)))))
		b.send(kafkatest.Sync("g", generation+1, ids[0]))
		b.send(kafkatest.Join(9, "g", b.newID("g")))
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation+1, ids[0], 1)))))
	})
}

// An error of one partition does not affect the others.
func TestCommitOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		q := kmsg.NewPtrOffsetCommitRequest()
		q.Version, q.Group = 9, "g"
		kafkatest.AddCommit(q, "t", 0, 1, "m")
		kafkatest.AddCommit(q, "t", 200, 2, "")
		kafkatest.AddCommit(q, "none", 0, 3, "")
		kafkatest.AddCommit(q, "t", 1, 4, "")
		kafkatest.AddCommit(q, "t", 1, 5, "")
		a := answered[*kmsg.OffsetCommitResponse](b.send(q))
		unknown := kerr.UnknownTopicOrPartition.Code
		require.Equal(t, []int16{0, unknown}, []int16{a.Topics[0].Partitions[0].ErrorCode, a.Topics[0].Partitions[1].ErrorCode})
		require.Equal(t, unknown, a.Topics[1].Partitions[0].ErrorCode)
		require.Equal(t, int64(1), b.offset("g", 0))
		require.Equal(t, int64(5), b.offset("g", 1), "the later of two")

		all := answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(7, "g")))
		require.Len(t, all.Topics, 1)
		require.Len(t, all.Topics[0].Partitions, 2)
		first := all.Topics[0].Partitions[0]
		require.Equal(t, "m", *first.Metadata)
		require.Equal(t, int32(7), first.LeaderEpoch)
	})
}

func TestOffsetFetch(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.commit("g", 3, 33)
		for version := int16(0); version <= 7; version++ {
			a := answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(version, "g", 3, 4, 3)))
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			require.Len(t, a.Topics[0].Partitions, 2, "one that is named again is answered once")
			require.Equal(t, int64(33), a.Topics[0].Partitions[0].Offset)
			require.Equal(t, int64(-1), a.Topics[0].Partitions[1].Offset)
		}
		for version := int16(8); version <= 9; version++ {
			q := kafkatest.OffsetFetch(version, "g", 3)
			q.Groups = append(q.Groups, kafkatest.OffsetFetch(version, "none", 3).Groups[0], kafkatest.OffsetFetch(version, "g").Groups[0])
			a := answered[*kmsg.OffsetFetchResponse](b.send(q))
			require.Len(t, a.Groups, 2)
			require.Equal(t, int64(33), a.Groups[0].Topics[0].Partitions[0].Offset)
			kafkatest.RequireCode(t, nil, a.Groups[1].ErrorCode)
			require.Equal(t, int64(-1), a.Groups[1].Topics[0].Partitions[0].Offset)
		}
		require.Empty(t, answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(7, "none"))).Topics)
		b.co.Resign(0, 2)
		for version := int16(0); version <= 7; version++ {
			a := answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(version, "g", 3)))
			if version < 2 {
				kafkatest.RequireCode(t, kerr.NotCoordinator, a.Topics[0].Partitions[0].ErrorCode)
			} else {
				kafkatest.RequireCode(t, kerr.NotCoordinator, a.ErrorCode)
			}
		}
		kafkatest.RequireCode(t, kerr.NotCoordinator, answered[*kmsg.OffsetFetchResponse](b.send(kafkatest.OffsetFetch(9, "g"))).Groups[0].ErrorCode)
	})
}

func TestOffsetsAreBounded(t *testing.T) {
	t.Parallel()
	size := offsetSize("g", "t", "")
	withFixture(t, func(b *fixture) {
		for i := range int32(3) {
			kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", i, 1))))
		}
		kafkatest.RequireCode(t, kerr.InvalidCommitOffsetSize, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, 1))))
		kafkatest.RequireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("g"))).Groups[0].ErrorCode)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, 1))))
		for i := range int64(10) { // repeated commits use no more
			kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 3, i))))
		}
	}, func(c *Config) { c.MaxOffsetBytes = 3 * size })
}

// A snapshot is made while commits are in flight: one is appended and not replicated, another
// arrived later. The snapshot must include the first and precede the second in the log, or a load
// would undo one of them.
func TestSnapshotDuringCommits(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.commit("g", 0, 10))))
		b.log.held = true
		before := b.commit("g", 0, 20) // the log is long enough now: a snapshot is due
		after := b.commit("g", 0, 30)
		require.Equal(t, 1, b.log.waits(), "the snapshot waits for the first, and the second for the snapshot")
		b.log.release(0, nil)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](before)))
		require.Equal(t, 2, b.log.waits(), "the snapshot and the second are in the log")
		require.Len(t, b.log.live(), 4)
		b.log.release(1, nil)
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](after)))
		require.Len(t, b.log.live(), 4, "nothing is deleted for a snapshot that could get lost")
		b.log.release(0, nil)
		require.Len(t, b.log.live(), 2)
		b.co.Resign(0, 2)
		b.log.held = false
		b.lead(2)
		require.Equal(t, int64(30), b.offset("g", 0))

		// The same with only the part of the log up to the snapshot.
		b.log.truncate(b.log.batches[1].base)
		b.co.Resign(0, 3)
		b.lead(3)
		require.Equal(t, int64(20), b.offset("g", 0))
	}, func(c *Config) { c.OffsetsCompactBytes = 150 })
}

// The log stays short, and a snapshot rewrites no more than was written since the last one.
func TestCompactionKeepsTheLogShort(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		const live = 50
		size := func() (n int) {
			for _, raw := range b.log.live() {
				n += len(raw)
			}
			return n
		}
		b.commit("0", 0, 0)
		one := b.log.written
		for i := range int64(live) {
			b.commit(fmt.Sprint(i), 0, 0)
		}
		bound := 3 * live * one
		before := b.log.written
		for i := range int64(5000) {
			b.commit(fmt.Sprint(i%live), 0, i)
			require.Less(t, size(), bound)
		}
		require.Less(t, b.log.written-before, 2*5000*one+bound)
		b.co.Resign(0, 2)
		b.lead(2)
		for i := range int64(live) {
			require.Equal(t, 5000-live+i, b.offset(fmt.Sprint(i), 0))
		}
		// A snapshot without live data works, too.
		for i := range int64(live) {
			kafkatest.RequireCode(t, nil, answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups(fmt.Sprint(i)))).Groups[0].ErrorCode)
		}
		for i := range int64(300) {
			b.commit("x", 0, i)
			answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("x")))
			require.Less(t, size(), bound)
		}
		b.co.Resign(0, 3)
		b.lead(3)
		require.Zero(t, b.co.groups.Load())
	}, func(c *Config) { c.OffsetsCompactBytes = 500 })
}

// A write of several batches is a unit: no other write gets in between, and a later barrier waits
// for all of it.
func TestWritesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		s := b.co.ledShards()[0]
		var order []string
		done := func(name string) func(int64, *kerr.Error) {
			return func(first int64, err *kerr.Error) {
				require.Nil(t, err)
				order = append(order, fmt.Sprint(name, " at ", first))
			}
		}
		record := log.Record{Key: []byte("k"), Value: make([]byte, b.co.cfg.MaxBatch)}
		long := &write{records: []log.Record{record, record, record}, done: done("long")}
		barrier := &write{barrier: true, make: func() []log.Record { order = append(order, "barrier"); return []log.Record{record} }, done: done("barrier")}
		short := &write{records: []log.Record{record}, done: done("short")}
		last := &write{records: []log.Record{record}, done: done("last")}
		for _, w := range []*write{long, short, barrier, last, {done: done("empty")}} {
			s.enqueue(w)
		}
		s.work(long)
		require.Equal(t, []string{"long at 0", "short at 3", "barrier", "barrier at 4", "last at 5", "empty at -1"}, order)

		s.end()
		refused := 0
		s.write(&write{done: func(_ int64, err *kerr.Error) {
			require.Equal(t, kerr.NotLeaderForPartition, err)
			refused++
		}})
		require.Equal(t, 1, refused)
	}, func(c *Config) { c.OffsetsCompactBytes = 10 << 20 })
}
