package replica

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// leaderOfThree leads brokers 1 and 2, of which 2 is in sync, in epoch 4, after ten records of
// epoch 3.
func leaderOfThree(t *testing.T) (*Partition, *meta.Image) {
	t.Helper()
	p := New(testReplicas, meta.PartitionKey{}, 0, new(atomic.Int64), noUptime, Stored{})
	for i := range 10 {
		p.log.Append(kafkatest.Batch([]string{fmt.Sprint(i)}), 3, 1, 0)
	}
	p.Assign(&meta.Topic{Name: "t", Settings: meta.Settings{Retention: 64 << 20, MinISR: 1}},
		meta.Assignment{Replicas: []int32{0, 1, 2}, ISR: []int32{0, 2}, Epoch: 4}, 0)
	return p, &meta.Image{Nodes: []meta.Node{{ID: 0}, {ID: 1}, {ID: 2}}}
}

// at makes a follower fetch from offset.
func at(p *Partition, id int32, offset int64) FetchResult {
	return p.FetchedBy(id, offset, 0, 4, 3, 0, nil)
}

// A follower that has not fetched in this epoch holds the high watermark where it was; after that,
// the slowest in-sync replica determines it.
func TestHighWatermarkIsTheSlowest(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	require.Zero(t, p.hw)
	require.False(t, at(p, 1, 9).Raised, "it is not in sync")
	require.True(t, at(p, 2, 5).Raised)
	require.Equal(t, int64(5), p.hw)
	require.False(t, at(p, 2, 4).Raised, "it never goes back")
	require.Equal(t, int64(5), p.hw)
	require.True(t, at(p, 2, 10).Raised)
	require.Equal(t, int64(10), p.hw)
}

// A fetch from another epoch, or from a broker that is not a replica, has no effect.
func TestFetchesOfOtherEpochs(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	for epoch, want := range map[int32]*kerr.Error{3: kerr.FencedLeaderEpoch, 5: kerr.UnknownLeaderEpoch, -1: kerr.UnknownLeaderEpoch} {
		require.Equal(t, want, p.FetchedBy(2, 10, 0, epoch, 3, 0, nil).Err)
	}
	require.Equal(t, kerr.UnknownTopicOrPartition, at(p, 7, 10).Err)
	require.Zero(t, p.hw)
}

// A follower that has reached the high watermark, but not the start of this leader epoch, may hold
// records that the leader does not have, so it is not in sync yet.
func TestReplicasThatMayRejoin(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	at(p, 2, 5)
	require.False(t, at(p, 1, 4).Rejoining, "behind the high watermark")
	require.False(t, at(p, 1, 7).Rejoining, "behind the start of the leader epoch")
	_, _, ok := p.ProposedISR(img, 0, time.Hour)
	require.False(t, ok)
	require.True(t, at(p, 1, 10).Rejoining)

	dead := &meta.Image{Nodes: []meta.Node{{ID: 0}, {ID: 2}}}
	_, _, ok = p.ProposedISR(dead, 0, time.Hour)
	require.False(t, ok, "one that does not live")
	_, isr, ok := p.ProposedISR(img, 0, time.Hour)
	require.True(t, ok)
	require.Equal(t, []int32{0, 1, 2}, isr)
}

// A follower counts from the moment that the leader proposes it as in sync: the controller may
// grant that before the leader learns of it.
func TestProposedReplicaCountsAtOnce(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	at(p, 1, 10)
	at(p, 2, 10)
	require.Equal(t, int64(10), p.hw)
	current, _, ok := p.ProposedISR(img, 0, time.Hour)
	require.True(t, ok)
	p.log.Append(kafkatest.Batch([]string{"x"}), 4, 1, 0)
	p.FetchedBy(2, 11, 0, 4, 4, 0, nil)
	require.Equal(t, int64(10), p.hw, "without the proposed one")
	p.WithdrawISR(current)
	p.FetchedBy(2, 11, 0, 4, 4, 0, nil)
	require.Equal(t, int64(11), p.hw)
}

// A follower that has not been at the log's end for too long is not in sync. A follower that was
// there recently is in sync, even if it is always a record behind.
func TestLaggingFollower(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	const lag = time.Minute
	p.FetchedBy(2, 10, 0, 4, 3, 0, nil)
	inSync := func(d time.Duration) bool {
		_, isr, changed := p.ProposedISR(img, d, lag)
		return !changed || len(isr) == 2
	}
	for i := range int64(4) { // each time it fetches, it has all but the last record
		p.log.Append(kafkatest.Batch([]string{"x"}), 4, 1, 0)
		p.FetchedBy(2, 10+i, 0, 4, min(3+int32(i), 4), time.Duration(i)*lag/2, nil)
		require.True(t, inSync(time.Duration(i)*lag/2), i)
	}
	require.True(t, inSync(2*lag))
	require.False(t, inSync(2*lag+time.Second), "it was last at the end, as that was then, after 1 minute")
}

// A follower that has every committed record, but has not been at the log's end for too long, does
// not come into the set: at the next look it would have to leave again.
func TestLaggingFollowerDoesNotRejoin(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	const lag, now = time.Minute, time.Minute + 1
	for range 3 {
		p.log.Append(kafkatest.Batch([]string{"x"}), 4, 1, 0)
	}
	fetch := func(id int32, offset int64) { p.FetchedBy(id, offset, 0, 4, 4, now, nil) }
	fetch(1, 11)
	fetch(2, 11)
	require.Equal(t, int64(11), p.hw)
	_, isr, ok := p.ProposedISR(img, now, lag)
	require.True(t, ok)
	require.Equal(t, []int32{0}, isr, "follower 2 leaves, and follower 1 lags as much")
	fetch(1, 13)
	_, isr, ok = p.ProposedISR(img, now, lag)
	require.True(t, ok)
	require.Equal(t, []int32{0, 1}, isr)
}

// A follower with the whole log begins to lag at the next record, however long the partition was
// idle: in a fetch session, fetches do not name an idle partition. A fetch in its session counts as
// a fetch of the partition.
func TestLagBeginsWithTheRecord(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	now := time.Duration(0)
	p.uptime = func() time.Duration { return now }
	var heard atomic.Int64
	const lag = time.Minute
	wanted := func() []int32 {
		_, isr, changed := p.ProposedISR(img, now, lag)
		if !changed {
			return p.assigned.ISR
		}
		return isr
	}
	p.FetchedBy(1, 10, 0, 4, 3, now, &heard)
	p.FetchedBy(2, 10, 0, 4, 3, now, &heard)
	now = time.Hour
	require.Equal(t, []int32{0, 2}, wanted(), "nothing was heard of follower 1 for an hour")
	heard.Store(int64(now))
	require.Equal(t, []int32{0, 1, 2}, wanted())
	raw := kafkatest.Batch([]string{"x"})
	b, bad := log.ParseBatch(raw, log.CurrentProduce, 1<<20)
	require.Nil(t, bad)
	_, err := p.Append(raw, &b, false)
	require.Nil(t, err)
	now += lag
	require.Contains(t, wanted(), int32(2))
	now++
	require.NotContains(t, wanted(), int32(2))
}

// A stale decision of the controller changes nothing.
func TestOldDecisionsAreIgnored(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	newer, older := p.assigned, p.assigned
	newer.ISR, newer.Version = []int32{0}, 7
	p.Assign(p.topic, newer, 0)
	older.ISR, older.Version = []int32{0, 1, 2}, 6
	require.Equal(t, RoleChange{EndedEpoch: -1, StartedEpoch: -1}, p.Assign(p.topic, older, 0))
	require.Equal(t, newer, p.assigned)
	older.Version, older.Leader, older.Epoch = 8, 1, 5
	require.Equal(t, RoleChange{EndedEpoch: 4, StartedEpoch: -1}, p.Assign(p.topic, older, 0))
	require.Equal(t, kerr.NotLeaderForPartition, p.Leads(-1))
}

// Records that followers do not have yet are not trimmed, so appends of them are limited.
func TestUncommittedIsKept(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	p.cfg = &Config{MaxUncommitted: 2000}
	p.topic.Retention = 300
	raw := kafkatest.Batch([]string{"some record"})
	b, bad := log.ParseBatch(raw, log.CurrentProduce, 1<<20)
	require.Nil(t, bad)
	refused := 0
	for range 50 {
		if _, err := p.Append(raw, &b, false); err != nil {
			require.Equal(t, kerr.NotEnoughReplicas, err)
			refused++
		}
	}
	require.Zero(t, p.log.Start())
	require.Positive(t, refused)
	p.FetchedBy(2, p.log.End(), 0, 4, 4, 0, nil)
	_, err := p.Append(raw, &b, false)
	require.Nil(t, err)
	require.Equal(t, p.log.End()-1, p.log.Start(), "retention allows for one, and the others are committed now")
}
