package group

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// compact commits until the log has been compacted, and requires that it was.
func (b *fixture) compact() {
	b.t.Helper()
	b.commit("other", 0, 0)
	begin := b.log.batches[0].base
	for n := int64(1); n < 1000; n++ {
		b.commit("other", 0, n)
		if b.log.batches[0].base > begin {
			return
		}
	}
	require.Fail(b.t, "the log is not compacted")
}

// During a rebalance the log has the members of the last generation, and the next coordinator must
// know them, whether the log is compacted in between or not.
func TestCompactionDuringRebalanceKeepsTheMembers(t *testing.T) {
	t.Parallel()
	for name, rebalance := range map[string]func(b *fixture, ids []string){
		"joining": func(b *fixture, ids []string) {
			b.send(kafkatest.Join(9, "g", ids[0])).requireParked()
		},
		"syncing": func(b *fixture, ids []string) {
			first, second := b.send(kafkatest.Join(9, "g", ids[0])), b.send(kafkatest.Join(9, "g", ids[1]))
			answered[*kmsg.JoinGroupResponse](first)
			answered[*kmsg.JoinGroupResponse](second)
			require.Equal(b.t, stateCompleting, b.state("g"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFixture(t, func(b *fixture) {
				ids, generation := b.stableGroup("g", 2)
				kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](b.send(kafkatest.Commit("g", generation, ids[0], 7)))))
				rebalance(b, ids)
				b.compact()
				b.compact()
				b.move(2)
				for _, id := range ids {
					b.requireHeartbeat(nil, "g", generation, id)
					require.Equal(t, "for "+id, b.assignment("g", generation, id))
				}
				a := answered[*kmsg.DeleteGroupsResponse](b.send(kafkatest.DeleteGroups("g")))
				kafkatest.RequireCode(t, kerr.NonEmptyGroup, a.Groups[0].ErrorCode)
				require.Equal(t, int64(7), b.offset("g", 0))
			}, func(c *Config) { c.OffsetsCompactBytes = 2000 })
		})
	}
}

// A group that has never had an assignment has no record, compacted or not.
func TestCompactionDuringTheFirstRebalance(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		join := b.send(kafkatest.Join(3, "g", ""))
		b.compact()
		b.pass(b.co.cfg.InitialRebalanceDelay + 2*fixtureTick)
		first := answered[*kmsg.JoinGroupResponse](join)
		b.compact()
		b.move(2)
		b.requireHeartbeat(kerr.UnknownMemberID, "g", first.Generation, first.MemberID)
	}, func(c *Config) { c.OffsetsCompactBytes = 2000 })
}

// blockWrites makes the queue of writes wait at a snapshot, which waits for commits.
func (b *fixture) blockWrites() {
	b.t.Helper()
	b.log.held = true
	for n := range int64(1000) {
		b.commit("other", 0, n)
		if len(b.queued()) == 1 {
			return
		}
	}
	require.Fail(b.t, "no snapshot is due")
}

func (b *fixture) queued() []*write {
	s := b.co.ledShards()[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes.queue)
}

// unblockWrites completes all queued writes.
func (b *fixture) unblockWrites() {
	for b.log.waits() > 0 {
		b.log.release(0, nil)
	}
	b.log.held = false
}

// Whatever happens to a group while the queue of writes is blocked, the group has one record in it,
// which is encoded at its turn. Otherwise a client that takes over its own slot repeatedly would
// fill the memory.
func TestGroupHasOneRecordInTheQueue(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		ids, _, generation := b.staticGroup(3)
		b.blockWrites()
		var back, gone *sent
		for range 100 {
			gone = back
			back = b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("b")))
			back.requireParked()
		}
		kafkatest.RequireCode(t, kerr.FencedInstanceID, answered[*kmsg.JoinGroupResponse](gone).ErrorCode)
		leader := b.send(kafkatest.Join(9, "g", "", kafkatest.WithInstance("a")))
		leader.requireParked()
		require.Len(t, b.queued(), 2, "a snapshot and a record")
		b.unblockWrites()
		var now []string
		for _, join := range []*sent{back, leader} {
			a := answered[*kmsg.JoinGroupResponse](join)
			kafkatest.RequireCode(t, nil, a.ErrorCode)
			require.Equal(t, generation, a.Generation)
			now = append(now, a.MemberID)
		}
		b.move(2)
		for i, name := range []string{"b", "a"} {
			b.requireHeartbeat(nil, "g", generation, now[i])
			require.Equal(t, "for "+ids[name], b.assignment("g", generation, now[i]))
		}
		require.Len(t, b.group("g").members, 3)
	}, func(c *Config) { c.OffsetsCompactBytes = 2000 })
}

// The record has the group's latest state, and the members that wait for it are answered.
func TestGroupGoesOnWhileItsRecordIsQueued(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(b *fixture, ids []string, generation int32){
		"all members leave": func(b *fixture, ids []string, generation int32) {
			answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids...)))
			b.unblockWrites()
			b.move(2)
			b.requireHeartbeat(kerr.UnknownMemberID, "g", generation, ids[0])
			require.Equal(b.t, int64(1), b.co.groups.Load(), "there is nothing left to know about it")
		},
		"all members leave, and another joins": func(b *fixture, ids []string, generation int32) {
			b.send(kafkatest.Commit("g", generation, ids[0], 7)).requireParked() // so that the group is kept
			answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids...)))
			b.send(kafkatest.Join(3, "g", "")).requireParked()
			b.unblockWrites()
			require.Equal(b.t, statePreparing, b.state("g"))
			b.move(2)
			require.Equal(b.t, stateEmpty, b.state("g"))
			_, next := b.stableGroup("g", 1)
			require.Equal(b.t, generation+2, next, "the empty one was one, too")
		},
		"all members leave, and another gets all partitions": func(b *fixture, ids []string, generation int32) {
			b.send(kafkatest.Commit("g", generation, ids[0], 7)).requireParked()
			answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids...)))
			join := b.send(kafkatest.Join(3, "g", ""))
			for len(b.queued()) > 0 {
				b.log.release(0, nil)
			}
			b.pass(b.co.cfg.InitialRebalanceDelay + 2*fixtureTick)
			a := answered[*kmsg.JoinGroupResponse](join)
			sync := b.send(kafkatest.Sync("g", a.Generation, a.MemberID, a.MemberID))
			for b.log.waits() > 1 {
				b.log.release(0, nil)
				sync.requireParked() // the log says that the group is empty
			}
			b.unblockWrites()
			kafkatest.RequireCode(b.t, nil, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
			b.move(2)
			b.requireHeartbeat(nil, "g", a.Generation, a.MemberID)
		},
		"the next generation": func(b *fixture, ids []string, generation int32) {
			answered[*kmsg.LeaveGroupResponse](b.send(kafkatest.Leave("g", ids[1])))
			join := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", ids[0])))
			require.Equal(b.t, generation+1, join.Generation)
			sync := b.send(kafkatest.Sync("g", generation+1, ids[0], ids[0]))
			sync.requireParked()
			b.unblockWrites()
			kafkatest.RequireCode(b.t, nil, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
			b.move(2)
			b.requireHeartbeat(nil, "g", generation+1, ids[0])
			b.requireHeartbeat(kerr.UnknownMemberID, "g", generation+1, ids[1])
		},
		"the next generation, and one joins": func(b *fixture, ids []string, generation int32) {
			joins := []*sent{b.send(kafkatest.Join(9, "g", ids[0])), b.send(kafkatest.Join(9, "g", ids[1]))}
			for _, s := range joins {
				require.Equal(b.t, generation+1, answered[*kmsg.JoinGroupResponse](s).Generation)
			}
			sync := b.send(kafkatest.Sync("g", generation+1, ids[0], ids...))
			sync.requireParked()
			b.send(kafkatest.Join(3, "g", "")).requireParked()
			kafkatest.RequireCode(b.t, kerr.RebalanceInProgress, answered[*kmsg.SyncGroupResponse](sync).ErrorCode)
			b.unblockWrites()
			b.move(2)
			for _, id := range ids {
				b.requireHeartbeat(nil, "g", generation, id)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFixture(t, func(b *fixture) {
				ids, generation := b.stableGroup("g", 2)
				b.blockWrites()
				test(b, ids, generation)
			}, func(c *Config) { c.OffsetsCompactBytes = 2000 })
		})
	}
}

// commitMany commits the same offset for a hundred partitions, with metadata: 30 KB.
func (b *fixture) commitMany(offset int64) *sent {
	q := kafkatest.Commit("g", -1, "", offset)
	for p := range int32(99) {
		kafkatest.AddCommit(q, "t", p+1, offset, strings.Repeat("m", 250))
	}
	return b.send(q)
}

func (b *fixture) logSize() (sum int) {
	for _, raw := range b.log.live() {
		sum += len(raw)
	}
	return sum
}

// The live data exceeds the bytes that a partition accepts before its replicas have them. It is
// compacted nevertheless, one batch at a time.
func TestSnapshotBeyondTheUncommittedLimit(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.log.held, b.log.most = true, 10_000
		for n := range int64(20) {
			commit := b.commitMany(n)
			for b.log.waits() > 0 {
				require.Equal(t, 1, b.log.waits(), "one batch after the other")
				b.log.release(0, nil)
			}
			kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](commit)))
			require.Less(t, b.logSize(), 5*30_000)
		}
		b.move(2)
		for p := range int32(100) {
			require.Equal(t, int64(19), b.offset("g", p))
		}
	}, func(c *Config) { c.OffsetsCompactBytes, c.MaxBatch = 1000, 5000 })
}

// A failed snapshot deletes nothing, and another one is made. Commits made in between are behind
// all of it in the log.
func TestSnapshotThatBreaksOff(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		answered[*kmsg.OffsetCommitResponse](b.commitMany(1))
		b.move(2) // counts the writes so far as growth
		b.log.held = true
		later := b.commitMany(2)
		for len(b.queued()) == 0 || !b.queued()[0].snapshot {
			b.log.release(0, nil)
		}
		b.log.release(0, nil) // the commit's last batch
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](later)))
		behind := b.commitMany(3)
		b.log.release(0, nil) // the first batch of the snapshot
		require.Equal(t, 1, b.log.waits())
		begin, size := b.log.batches[0].base, b.logSize()
		b.log.release(0, kerr.NotEnoughReplicas)
		require.Equal(t, begin, b.log.batches[0].base)
		b.unblockWrites()
		kafkatest.RequireCode(t, nil, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](behind)))
		for n := range int64(3) {
			answered[*kmsg.OffsetCommitResponse](b.commitMany(4 + n))
		}
		require.Less(t, b.logSize(), size)
		b.move(3)
		for p := range int32(100) {
			require.Equal(t, int64(6), b.offset("g", p))
		}
	}, func(c *Config) { c.OffsetsCompactBytes, c.MaxBatch = 1000, 5000 })
}

// The leader epoch ends during a write of several batches: its done function is called once.
func TestMoveDuringAWriteOfSeveralBatches(t *testing.T) {
	t.Parallel()
	withFixture(t, func(b *fixture) {
		b.log.held = true
		commit := b.commitMany(1)
		b.log.release(0, nil)
		require.Equal(t, 1, b.log.waits())
		commit.requireParked()
		b.co.Resign(0, 2)
		kafkatest.RequireCode(t, kerr.NotCoordinator, kafkatest.CommitCode(answered[*kmsg.OffsetCommitResponse](commit)))
		b.log.release(0, kerr.NotLeaderForPartition)
	}, func(c *Config) { c.MaxBatch = 5000 })
}
