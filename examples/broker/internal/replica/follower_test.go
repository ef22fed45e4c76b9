package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// written is a batch of one record in a history.
type written struct {
	epoch int32
	value string
}

// histories returns two logs as a series of leader changes would leave them: in each epoch one of
// two brokers leads and writes, and the other one follows to its end, in part, or not at all.
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

var testReplicas = func() *Config {
	cfg, _ := Config{}.WithDefaults()
	return &cfg
}()

// noUptime is the uptime of a broker that has just started.
func noUptime() time.Duration { return 0 }

// replicaOf returns a broker's replica with this log.
func replicaOf(id int32, log []written, epoch int32) *Partition {
	p := New(testReplicas, meta.PartitionKey{}, id, new(atomic.Int64), noUptime, Stored{})
	for _, w := range log {
		p.log.Append(kafkatest.Batch([]string{w.value}), w.epoch, 1, 0)
	}
	p.Assign(&meta.Topic{Name: "t", Settings: meta.Settings{Retention: 64 << 20, MinISR: 1}},
		meta.Assignment{Replicas: []int32{0, 1}, ISR: []int32{0}, Epoch: epoch}, 0)
	return p
}

// Whatever the histories of two logs, a follower keeps their common prefix, drops the rest, and
// ends up with its leader's log. KIP-101, KIP-279.
func TestFollowerFindsWhereLogsPart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ours, theirs, epoch := histories(rng)
		common := commonPrefix(ours, theirs)
		lead, follow := replicaOf(0, ours, epoch), replicaOf(1, theirs, epoch)
		if rng.IntN(3) == 0 { // the leader has deleted some records
			lead.hw = lead.log.End()
			require.Nil(t, lead.DeleteBefore(epoch, rng.Int64N(lead.log.End()+1)))
		}
		for round := 0; follow.log.End() != lead.log.End() || follow.log.LastEpoch() != lead.log.LastEpoch(); round++ {
			require.Less(t, round, 30, "seed %d: it does not end", seed)
			at, ok := follow.Following(0)
			require.True(t, ok)
			switch f := lead.FetchedBy(1, at.Offset, at.Start, at.Epoch, at.LastEpoch, 0, nil); {
			case f.Err == kerr.OffsetOutOfRange:
				follow.ResetTo(epoch, lead.log.Start())
			case f.Err != nil:
				t.Fatal(f.Err)
			case f.Diverging != nil:
				follow.TruncateToDivergence(epoch, *f.Diverging)
				require.GreaterOrEqual(t, follow.log.End(), int64(common), "seed %d: records in common were dropped", seed)
			default:
				got := lead.Read(at.Offset, epoch, true, 1<<20, true)
				require.Nil(t, got.Err)
				require.NoError(t, follow.AppendFetched(epoch, slices.Concat(got.Batches...), got.HighWatermark, got.Start))
				if len(got.Batches) == 0 {
					require.Equal(t, lead.log.End(), follow.log.End(), "seed %d", seed)
				}
			}
			require.NoError(t, follow.log.Verify())
			if follow.log.End() == lead.log.End() && follow.log.Len() == 0 {
				break
			}
		}
		a, _ := lead.Records(follow.log.Start())
		b, _ := follow.Records(lead.log.Start())
		require.Equal(t, a, b, "seed %d", seed)
	}
}

// A follower's high watermark never exceeds its own log's end, even if its leader's does.
func TestFollowersHighWatermark(t *testing.T) {
	t.Parallel()
	lead, follow := replicaOf(0, []written{{1, "a"}, {1, "b"}, {1, "c"}}, 1), replicaOf(1, nil, 1)
	require.Equal(t, int64(3), func() int64 { lead.raiseLocked(); return lead.hw }())
	first := lead.Read(0, 1, true, 1, true)
	require.NoError(t, follow.AppendFetched(1, slices.Concat(first.Batches...), first.HighWatermark, 0))
	require.Equal(t, []int64{1, 1}, []int64{follow.log.End(), follow.hw})
	rest := lead.Read(1, 1, true, 1<<20, true)
	require.NoError(t, follow.AppendFetched(1, slices.Concat(rest.Batches...), 2, 0))
	require.Equal(t, []int64{3, 2}, []int64{follow.log.End(), follow.hw})
	require.ErrorIs(t, follow.AppendFetched(1, slices.Concat(rest.Batches...), 3, 0), log.ErrNotNext)
	broken := slices.Clone(rest.Batches[0])
	broken[len(broken)-1]++
	require.Error(t, follow.AppendFetched(1, broken, 3, 0))
	require.NoError(t, follow.AppendFetched(0, broken, 3, 0), "what a leader of another epoch has sent is not even read")
}
