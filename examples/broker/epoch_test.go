package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// written is a batch of one record, as two brokers' histories have it.
type written struct {
	epoch int32
	value string
}

// histories makes two logs as a change of leaders after the other would: in each
// epoch one of two brokers leads and writes, and the other has followed it to its
// end, in part, or not at all.
func histories(rng *rand.Rand) (leader, follower []written, epoch int32) {
	logs := [2][]written{}
	for epoch = range int32(7) {
		lead := rng.IntN(2)
		if epoch == 6 {
			lead = 0
		}
		other := 1 - lead
		for i := range rng.IntN(4) {
			logs[lead] = append(slices.Clip(logs[lead]), written{epoch, fmt.Sprint(epoch, "-", i)})
		}
		if common := commonPrefix(logs[0], logs[1]); rng.IntN(2) == 0 && epoch < 6 {
			logs[other] = slices.Clone(logs[lead][:common+rng.IntN(len(logs[lead])-common+1)])
		}
	}
	return logs[0], logs[1], epoch
}

func commonPrefix(a, b []written) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// replicaOf is a broker's replica with such a log.
func replicaOf(cfg *config, id int32, log []written, epoch int32) *partition {
	p := newPartition(cfg, partitionKey{}, id, new(atomic.Int64), stored{})
	for _, w := range log {
		p.log.append(batchOf([]string{w.value}), w.epoch, 1, 0)
	}
	p.assign(&topic{name: "t", retention: cfg.retentionBytes, minISR: 1},
		assignment{replicas: []int32{0, 1}, isr: []int32{0}, epoch: epoch}, time.Now())
	return p
}

// Whatever two logs have been through, a follower keeps what it has in common
// with its leader, drops the rest, and ends up with the same. KIP-101, KIP-279.
func TestFollowerFindsWhereLogsPart(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ours, theirs, epoch := histories(rng)
		common := commonPrefix(ours, theirs)
		lead, follow := replicaOf(&cfg, 0, ours, epoch), replicaOf(&cfg, 1, theirs, epoch)
		if rng.IntN(3) == 0 { // the leader has deleted some of it
			lead.hw = lead.log.next
			require.Nil(t, lead.deleteBefore(epoch, rng.Int64N(lead.log.next+1)))
		}
		for round := 0; follow.log.next != lead.log.next || follow.log.lastEpoch() != lead.log.lastEpoch(); round++ {
			require.Less(t, round, 30, "seed %d: it does not end", seed)
			at, ok := follow.following(0)
			require.True(t, ok)
			switch f := lead.fetchedBy(1, at.offset, at.start, at.epoch, at.lastEpoch, time.Now()); {
			case f.err == kerr.OffsetOutOfRange:
				follow.restartAt(&cfg, epoch, lead.log.start)
			case f.err != nil:
				t.Fatal(f.err)
			case f.diverging != nil:
				follow.partWays(&cfg, epoch, *f.diverging)
				require.GreaterOrEqual(t, follow.log.next, int64(common), "seed %d: records in common were dropped", seed)
			default:
				got := lead.read(at.offset, epoch, true, 1<<20, true)
				require.Nil(t, got.err)
				require.NoError(t, follow.take(&cfg, epoch, slices.Concat(got.batches...), got.hw, got.start))
				if len(got.batches) == 0 {
					require.Equal(t, lead.log.next, follow.log.next, "seed %d", seed)
				}
			}
			follow.log.verify(t)
			if follow.log.next == lead.log.next && len(follow.log.batches) == 0 {
				break
			}
		}
		a, _ := lead.records(follow.log.start)
		b, _ := follow.records(lead.log.start)
		require.Equal(t, a, b, "seed %d", seed)
	}
}

// A follower's high watermark is never beyond what it has, though its leader's be.
func TestFollowersHighWatermark(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	lead, follow := replicaOf(&cfg, 0, []written{{1, "a"}, {1, "b"}, {1, "c"}}, 1), replicaOf(&cfg, 1, nil, 1)
	require.Equal(t, int64(3), func() int64 { lead.raiseLocked(time.Now()); return lead.hw }())
	first := lead.read(0, 1, true, 1, true)
	require.NoError(t, follow.take(&cfg, 1, slices.Concat(first.batches...), first.hw, 0))
	require.Equal(t, []int64{1, 1}, []int64{follow.log.next, follow.hw})
	rest := lead.read(1, 1, true, 1<<20, true)
	require.NoError(t, follow.take(&cfg, 1, slices.Concat(rest.batches...), 2, 0))
	require.Equal(t, []int64{3, 2}, []int64{follow.log.next, follow.hw})
	require.ErrorIs(t, follow.take(&cfg, 1, slices.Concat(rest.batches...), 3, 0), errNotNext)
	broken := slices.Clone(rest.batches[0])
	broken[len(broken)-1]++
	require.Error(t, follow.take(&cfg, 1, broken, 3, 0))
	require.NoError(t, follow.take(&cfg, 0, broken, 3, 0), "what a leader of another epoch has sent is not even read")
}
