package tour

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
)

// The tour: deliberate faults during the drive's load. Each scenario makes a fault, waits for its
// expected effect, ends it, and waits until the cluster is healthy again. The load decides the
// verdict.

type tour struct {
	d         *drive
	cluster   *cluster.Cluster
	rng       *rand.Rand
	printf    func(format string, args ...any)
	lastFault atomic.Int64 // when the last fault ended, since the drive's start; MaxInt64 during one
	completed int          // scenarios
}

// scenario is one fault of the tour.
type scenario struct {
	name  string
	nodes int // brokers that it needs
	run   func(*tour, context.Context) error
}

var scenarios = []scenario{
	{"a follower pauses", 2, (*tour).pauseFollower},
	{"a leader dies and comes back", 2, (*tour).killLeader},
	{"the group's members come and go", 1, (*tour).changeMembers},
	{"a link between two brokers is cut", 2, (*tour).cutLink},
	{"a leader freezes until it is given up, and wakes", 2, (*tour).freezeLeader},
	{"a broker is slow", 2, (*tour).slowBroker},
	{"records are deleted", 1, (*tour).deleteRecords},
	{"a broker is stopped in order, and started", 2, (*tour).restart},
}

func newTour(d *drive, printf func(string, ...any)) *tour {
	return &tour{d: d, cluster: d.cluster, printf: printf, rng: rand.New(rand.NewPCG(d.load.Seed, 0))}
}

// scenarioTimeout limits the waits for the effect of a fault and for the cluster to be healthy
// again.
const scenarioTimeout = time.Minute

func (t *tour) run(ctx context.Context) {
	order := slices.Clone(t.d.load.scenarios)
	if order == nil {
		order = slices.Clone(scenarios)
	}
	if t.d.load.Seed != 0 {
		t.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	order = slices.DeleteFunc(order, func(s scenario) bool { return int(t.cluster.Brokers()) < s.nodes })
	for i, s := range order {
		if !fault.Sleep(ctx, t.d.load.Calm) {
			return
		}
		t.printf("%d of %d: %s", i+1, len(order), s.name)
		t.lastFault.Store(math.MaxInt64)
		bounded, cancel := context.WithTimeout(ctx, 2*scenarioTimeout)
		err := s.run(t, bounded)
		if err == nil {
			err = t.cluster.WaitHealthy(bounded)
		}
		cancel()
		t.lastFault.Store(int64(time.Since(t.d.start)))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.d.problem("tour: %s: %v", s.name, err)
		default:
			t.completed++
		}
	}
}

// faultFreeSince reports whether the last fault ended before the given time since the drive's
// start.
func (t *tour) faultFreeSince(since time.Duration) bool { return t.lastFault.Load() < int64(since) }

// randomBroker returns a random broker except the given ones.
func (t *tour) randomBroker(except ...int32) int32 {
	for {
		if id := t.rng.Int32N(t.cluster.Brokers()); !slices.Contains(except, id) {
			return id
		}
	}
}

// waitForPartition waits for a partition that matches is; with never, until no partition matches.
func (t *tour) waitForPartition(ctx context.Context, what string, never bool, is func(cluster.Partition) bool) error {
	for end := time.Now().Add(scenarioTimeout); slices.ContainsFunc(t.cluster.Partitions(), is) == never; {
		if time.Now().After(end) || !fault.Sleep(ctx, 2*time.Millisecond) {
			return fmt.Errorf("%s: that does not happen", what)
		}
	}
	return nil
}

// outOfSync matches partitions that another broker leads and whose in-sync set no longer includes
// broker id.
func outOfSync(id int32) func(cluster.Partition) bool {
	return func(p cluster.Partition) bool {
		return p.Leader != id && slices.Contains(p.Replicas, id) && !slices.Contains(p.InSync, id)
	}
}

func (t *tour) waitForNewLeaders(ctx context.Context, id int32) error {
	return t.waitForPartition(ctx, "others lead", true, func(p cluster.Partition) bool { return p.Leader == id })
}

// pauseFollower: produces wait for the follower until it is removed from the in-sync sets.
func (t *tour) pauseFollower(ctx context.Context) error {
	id := t.randomBroker()
	err := t.cluster.Pause(id)
	if err == nil {
		err = t.waitForPartition(ctx, "it falls out of sync", false, outOfSync(id))
	}
	return errors.Join(err, t.cluster.Resume(id))
}

// killLeader: its partitions get new leaders, and clients find them.
func (t *tour) killLeader(ctx context.Context) error {
	id := t.randomBroker()
	if err := t.cluster.Kill(id); err != nil {
		return err
	}
	err := t.waitForNewLeaders(ctx, id)
	fault.Sleep(ctx, time.Second)
	return errors.Join(err, t.cluster.Start(id))
}

// freezeLeader: when the broker wakes, it still believes that it leads.
func (t *tour) freezeLeader(ctx context.Context) error {
	id := t.randomBroker()
	err := t.cluster.Pause(id)
	if err == nil {
		err = t.waitForNewLeaders(ctx, id)
	}
	fault.Sleep(ctx, 500*time.Millisecond)
	return errors.Join(err, t.cluster.Resume(id))
}

// cutLink: each of the two brokers leads partitions that the other cannot follow.
func (t *tour) cutLink(ctx context.Context) error {
	a := t.randomBroker()
	b := t.randomBroker(a)
	err := t.cluster.Cut(a, b)
	if err == nil {
		err = t.waitForPartition(ctx, "one of them falls out of sync", false, func(p cluster.Partition) bool {
			return outOfSync(a)(p) || outOfSync(b)(p)
		})
	}
	return errors.Join(err, t.cluster.Heal(a, b))
}

func (t *tour) slowBroker(ctx context.Context) error {
	id := t.randomBroker()
	err := t.cluster.Slow(id, 10*time.Millisecond)
	fault.Sleep(ctx, 1500*time.Millisecond)
	return errors.Join(err, t.cluster.Slow(id, 0))
}

func (t *tour) restart(ctx context.Context) error {
	id := t.randomBroker()
	bounded, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	err := t.cluster.Stop(bounded, id)
	fault.Sleep(ctx, 500*time.Millisecond)
	return errors.Join(err, t.cluster.Start(id))
}

// changeMembers: members join, leave and crash; the others take over.
func (t *tour) changeMembers(ctx context.Context) error {
	g := t.d.readers
	for _, change := range []func(){g.join, g.leave, g.join, g.crash} {
		change()
		if !fault.Sleep(ctx, 700*time.Millisecond) {
			return ctx.Err()
		}
	}
	fault.Sleep(ctx, readersSession)
	return nil
}

// deleteRecords: the response waits until every replica has deleted the records.
func (t *tour) deleteRecords(ctx context.Context) error {
	const topic, records = "scratch", 10
	cl, err := t.d.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	creation := kmsg.NewPtrCreateTopicsRequest()
	creation.TimeoutMillis = 30_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, -1
	creation.Topics = append(creation.Topics, rt)
	created, err := creation.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(created.Topics[0].ErrorCode); err != nil {
		return err
	}
	some := make([]*kgo.Record, records)
	for i := range some {
		some[i] = &kgo.Record{Topic: topic, Value: []byte("to be deleted")}
	}
	if err := cl.ProduceSync(ctx, some...).FirstErr(); err != nil {
		return err
	}
	deletion := kmsg.NewPtrDeleteRecordsRequest()
	deletion.TimeoutMillis = 30_000
	dt, dp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	dt.Topic, dp.Offset = topic, records
	dt.Partitions = append(dt.Partitions, dp)
	deletion.Topics = append(deletion.Topics, dt)
	deleted, err := deletion.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	part := deleted.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
		return err
	}
	if part.LowWatermark != records {
		return fmt.Errorf("low watermark %d, not %d", part.LowWatermark, records)
	}
	return nil
}
