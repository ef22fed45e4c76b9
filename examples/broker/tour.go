package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tour: faults on purpose while the drive's load goes on. Each stop makes a
// fault, waits for what must follow from it, mends it, and waits until the
// cluster is whole again. What the load finds wrong meanwhile is the verdict.

type tour struct {
	d       *drive
	cluster *cluster
	rng     *rand.Rand
	say     func(format string, args ...any)
	stormy  atomic.Int64 // when the last fault was over, since the drive's start; MaxInt64 during one
	made    int          // stops seen through
}

// stop is one of the tour's.
type stop struct {
	name  string
	nodes int // brokers it takes
	run   func(*tour, context.Context) error
}

var stops = []stop{
	{"a follower pauses", 2, (*tour).pauseFollower},
	{"a leader dies and comes back", 2, (*tour).killLeader},
	{"the group's members come and go", 1, (*tour).changeMembers},
	{"a link between two brokers is cut", 2, (*tour).cutLink},
	{"a leader freezes until it is given up, and wakes", 2, (*tour).freezeLeader},
	{"a broker is slow", 2, (*tour).slowBroker},
	{"records are deleted", 1, (*tour).deleteRecords},
	{"a broker is stopped in order, and started", 2, (*tour).restart},
}

func newTour(d *drive, say func(string, ...any)) *tour {
	return &tour{d: d, cluster: d.cluster, say: say, rng: rand.New(rand.NewPCG(d.load.seed, 0))}
}

// patience of the tour, for what a fault must bring about and for the cluster to
// be whole again.
const tourPatience = 15 * time.Second

func (t *tour) run(ctx context.Context) {
	order := slices.Clone(stops)
	if t.d.load.seed != 0 {
		t.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, s := range order {
		if len(t.cluster.nodes) < s.nodes {
			continue
		}
		if !pause(ctx, 500*time.Millisecond) {
			return
		}
		t.say("%s", s.name)
		t.stormy.Store(over)
		bounded, cancel := context.WithTimeout(ctx, 2*tourPatience)
		err := s.run(t, bounded)
		if err == nil && !t.cluster.settled(bounded) {
			err = errors.New("the cluster does not become whole again")
		}
		cancel()
		t.stormy.Store(int64(time.Since(t.d.start)))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.d.problem("tour: %s: %v", s.name, err)
		default:
			t.made++
		}
	}
}

// calm reports whether there has been no fault since a time after the drive's start.
func (t *tour) calm(since time.Duration) bool { return t.stormy.Load() < int64(since) }

// any is some broker, but not the one given.
func (t *tour) any(but ...int32) *node {
	for {
		if n := t.cluster.nodes[t.rng.IntN(len(t.cluster.nodes))]; !slices.Contains(but, n.id) {
			return n
		}
	}
}

// until waits for the controller's image to be so.
func (t *tour) until(ctx context.Context, what string, so func(*image) bool) error {
	for end := time.Now().Add(tourPatience); !so(t.cluster.controller.image()); {
		if time.Now().After(end) || !pause(ctx, 2*time.Millisecond) {
			return fmt.Errorf("%s: that does not happen", what)
		}
	}
	return nil
}

// outOfSync: a partition that somebody else leads goes on without the broker.
func outOfSync(id int32) func(*image) bool {
	return anyPartition(func(a assignment) bool {
		return a.leader != id && slices.Contains(a.replicas, id) && !slices.Contains(a.isr, id)
	})
}

// leadsNothing: every partition of the broker has another leader.
func leadsNothing(id int32) func(*image) bool {
	leads := anyPartition(func(a assignment) bool { return a.leader == id })
	return func(img *image) bool { return !leads(img) }
}

func anyPartition(is func(assignment) bool) func(*image) bool {
	return func(img *image) bool {
		for _, t := range img.byID {
			if slices.ContainsFunc(t.partitions, is) {
				return true
			}
		}
		return false
	}
}

// pauseFollower: produces wait for it, until it is taken out of the in-sync sets.
func (t *tour) pauseFollower(ctx context.Context) error {
	n := t.any()
	n.gate.pause()
	defer n.gate.resume()
	return t.until(ctx, "it falls out of sync", outOfSync(n.id))
}

// killLeader: its partitions get other leaders, and clients find them.
func (t *tour) killLeader(ctx context.Context) error {
	n := t.any()
	if err := n.kill(); err != nil {
		return err
	}
	err := t.until(ctx, "others lead", leadsNothing(n.id))
	pause(ctx, time.Second)
	return errors.Join(err, n.start())
}

// freezeLeader: when it wakes it takes itself for a leader that it is no more.
func (t *tour) freezeLeader(ctx context.Context) error {
	n := t.any()
	n.gate.pause()
	defer n.gate.resume()
	err := t.until(ctx, "others lead", leadsNothing(n.id))
	pause(ctx, 500*time.Millisecond)
	return err
}

// cutLink: each of the two leads partitions that the other cannot follow.
func (t *tour) cutLink(ctx context.Context) error {
	a := t.any()
	b := t.any(a.id)
	t.cluster.links.sever(a.id, b.id)
	defer t.cluster.links.heal(a.id, b.id)
	return t.until(ctx, "one of them falls out of sync", func(img *image) bool {
		return outOfSync(a.id)(img) || outOfSync(b.id)(img)
	})
}

func (t *tour) slowBroker(ctx context.Context) error {
	n := t.any()
	n.gate.slow(10 * time.Millisecond)
	defer n.gate.slow(0)
	pause(ctx, 1500*time.Millisecond)
	return nil
}

func (t *tour) restart(ctx context.Context) error {
	n := t.any()
	bounded, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	err := n.stop(bounded)
	pause(ctx, 500*time.Millisecond)
	return errors.Join(err, n.start())
}

// changeMembers: one joins, one leaves, one crashes; the rest take over.
func (t *tour) changeMembers(ctx context.Context) error {
	g := t.d.readers
	for _, change := range []func(){g.join, g.leave, g.join, g.crash} {
		change()
		if !pause(ctx, 700*time.Millisecond) {
			return ctx.Err()
		}
	}
	pause(ctx, readersSession)
	return nil
}

// deleteRecords: the answer waits for every replica to have deleted them.
func (t *tour) deleteRecords(ctx context.Context) error {
	const topic, records = "scratch", 10
	cl, err := t.d.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	creation := kmsg.NewPtrCreateTopicsRequest()
	creation.TimeoutMillis = 5000
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
	deletion.TimeoutMillis = 5000
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
