package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// leaderOfThree leads brokers 1 and 2, of which 2 is in sync, in epoch 4, after
// ten records of epoch 3.
func leaderOfThree(t *testing.T) (*partition, *image) {
	t.Helper()
	cfg := testConfig()
	p := newPartition(&cfg, partitionKey{}, 0, new(atomic.Int64), stored{})
	for i := range 10 {
		p.log.append(batchOf([]string{fmt.Sprint(i)}), 3, 1, 0)
	}
	p.assign(&topic{name: "t", retention: cfg.retentionBytes, minISR: 1},
		assignment{replicas: []int32{0, 1, 2}, isr: []int32{0, 2}, epoch: 4}, time.Now())
	return p, &image{nodes: []nodeInfo{{id: 0}, {id: 1}, {id: 2}}}
}

// at is a follower's fetch that says it has what comes before offset.
func at(p *partition, id int32, offset int64) fetched {
	return p.fetchedBy(id, offset, 0, 4, 3, time.Now())
}

// A follower of which this reign has not heard yet holds the high watermark
// where it was; then it is the slowest of those in sync.
func TestHighWatermarkIsTheSlowest(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	require.Zero(t, p.hw)
	require.False(t, at(p, 1, 9).raised, "it is not in sync")
	require.True(t, at(p, 2, 5).raised)
	require.Equal(t, int64(5), p.hw)
	require.False(t, at(p, 2, 4).raised, "it never goes back")
	require.Equal(t, int64(5), p.hw)
	require.True(t, at(p, 2, 10).raised)
	require.Equal(t, int64(10), p.hw)
}

// What was said to a leader of another epoch, or by a stranger, does not count.
func TestFetchesOfOtherEpochs(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	for epoch, want := range map[int32]*kerr.Error{3: kerr.FencedLeaderEpoch, 5: kerr.UnknownLeaderEpoch, -1: kerr.UnknownLeaderEpoch} {
		require.Equal(t, want, p.fetchedBy(2, 10, 0, epoch, 3, time.Now()).err)
	}
	require.Equal(t, kerr.UnknownTopicOrPartition, at(p, 7, 10).err)
	require.Zero(t, p.hw)
}

// Who has caught up with the high watermark, but not with where this reign began,
// may hold records that are not the leader's, and is not in sync yet.
func TestWhoMayComeBackIntoSync(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	at(p, 2, 5)
	require.False(t, at(p, 1, 4).rejoining, "behind the high watermark")
	require.False(t, at(p, 1, 7).rejoining, "behind the reign")
	_, _, ok := p.wanted(img, time.Now(), time.Hour)
	require.False(t, ok)
	require.True(t, at(p, 1, 10).rejoining)

	dead := &image{nodes: []nodeInfo{{id: 0}, {id: 2}}}
	_, _, ok = p.wanted(dead, time.Now(), time.Hour)
	require.False(t, ok, "one that does not live")
	_, isr, ok := p.wanted(img, time.Now(), time.Hour)
	require.True(t, ok)
	require.Equal(t, []int32{0, 1, 2}, isr)
}

// From the moment that a leader asks for a follower to be in sync, the follower
// counts: the controller may have granted it before the leader knows.
func TestAskedForCountsAtOnce(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	at(p, 1, 10)
	at(p, 2, 10)
	require.Equal(t, int64(10), p.hw)
	believed, _, ok := p.wanted(img, time.Now(), time.Hour)
	require.True(t, ok)
	p.log.append(batchOf([]string{"x"}), 4, 1, 0)
	p.fetchedBy(2, 11, 0, 4, 4, time.Now())
	require.Equal(t, int64(10), p.hw, "without the one that was asked for")
	p.withdraw(believed)
	p.fetchedBy(2, 11, 0, 4, 4, time.Now())
	require.Equal(t, int64(11), p.hw)
}

// A follower that has not been at the log's end for too long is not in sync; one
// that was, at some time not too long ago, is, also if it never is right now.
func TestWhoLags(t *testing.T) {
	t.Parallel()
	p, img := leaderOfThree(t)
	const lag = time.Minute
	after := time.Now().Add
	p.fetchedBy(2, 10, 0, 4, 3, after(0))
	inSync := func(d time.Duration) bool {
		_, isr, changed := p.wanted(img, after(d), lag)
		return !changed || len(isr) == 2
	}
	for i := range int64(4) { // each time it comes, it has all but the last record
		p.log.append(batchOf([]string{"x"}), 4, 1, 0)
		p.fetchedBy(2, 10+i, 0, 4, min(3+int32(i), 4), after(time.Duration(i)*lag/2))
		require.True(t, inSync(time.Duration(i)*lag/2), i)
	}
	require.True(t, inSync(2*lag))
	require.False(t, inSync(2*lag+time.Second), "it was last at the end, as that was then, after 1 minute")
}

// What came late from the controller changes nothing.
func TestOldDecisionsAreIgnored(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	newer, older := p.assigned, p.assigned
	newer.isr, newer.version = []int32{0}, 7
	p.assign(p.topic, newer, time.Now())
	older.isr, older.version = []int32{0, 1, 2}, 6
	require.Equal(t, turn{lost: -1, begun: -1}, p.assign(p.topic, older, time.Now()))
	require.Equal(t, newer, p.assigned)
	older.version, older.leader, older.epoch = 8, 1, 5
	require.Equal(t, turn{lost: 4, begun: -1}, p.assign(p.topic, older, time.Now()))
	require.Equal(t, kerr.NotLeaderForPartition, p.leads(-1))
}

// What the followers have not got yet is not trimmed, and so it is bounded where
// it comes in.
func TestUncommittedIsKept(t *testing.T) {
	t.Parallel()
	p, _ := leaderOfThree(t)
	cfg := testConfig()
	cfg.maxUncommitted = 2000
	p.topic.retention = 300
	raw := batchOf([]string{"some record"})
	b, bad := parseBatch(raw, currentProduce, cfg.maxBatch)
	require.Nil(t, bad)
	refused := 0
	for range 50 {
		if _, err := p.append(&cfg, raw, &b, false); err != nil {
			require.Equal(t, kerr.NotEnoughReplicas, err)
			refused++
		}
	}
	require.Zero(t, p.log.start)
	require.Positive(t, refused)
	p.fetchedBy(2, p.log.next, 0, 4, 4, time.Now())
	_, err := p.append(&cfg, raw, &b, false)
	require.Nil(t, err)
	require.Equal(t, p.log.next-1, p.log.start, "retention allows for one, and the others are committed now")
}

// A leader that does not know what the controller has decided since is refused.
func TestInSyncSetsOfYesterday(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c, key, a := s.cluster.controller, partitionKey{topic.id, 0}, topic.partitions[0]
	require.Nil(t, c.alterISR(0, key, a, []int32{0}))
	require.Equal(t, kerr.InvalidUpdateVersion, c.alterISR(0, key, a, []int32{0}))
	_, now := c.image().assignment(key)
	require.Equal(t, kerr.IneligibleReplica, c.alterISR(0, key, *now, []int32{0, 1}), "no replica")
	require.Equal(t, kerr.FencedLeaderEpoch, c.alterISR(1, key, *now, []int32{0}), "no leader")
	require.Equal(t, kerr.UnknownTopicID, c.alterISR(0, partitionKey{}, *now, []int32{0}))
}

// The watermarks of a reign that is over are infinite: whoever comes to wait for
// them is completed at once.
func TestReignsThatAreOver(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	require.Zero(t, dial(t, s).produce(topic, 0, batchOf([]string{"x"})).ErrorCode)
	now, leads := replica(s, topic, 0).reign()
	require.True(t, leads)
	require.Equal(t, int64(1), s.committed(now))
	require.Zero(t, s.deleted(now))
	next := topic.partitions[0]
	next.epoch, next.version = next.epoch+1, next.version+1
	s.assign(replica(s, topic, 0), topic, next, time.Now())
	require.Equal(t, int64(1), s.committed(reign{now.partitionKey, next.epoch}))
	for _, r := range []reign{now, {now.partitionKey, now.epoch + 2}, {partitionKey{topic.id, 1}, 0}} {
		require.Equal(t, int64(over), s.committed(r))
		require.Equal(t, int64(over), s.deleted(r))
	}
}
