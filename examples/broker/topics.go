package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

// topicsChange is a delayed operation: the controller has decided to create or
// to delete topics, and the answer waits until this broker has acted on it and
// every new partition has a leader, so that who is told finds it so.
type topicsChange struct {
	srv     *server
	reply   *reply
	build   func() kmsg.Response // what to answer then
	waiting []changingTopic
	arrived time.Time
}

type changingTopic struct {
	name string // the watch key
	id   topicID
	gone bool   // it is being deleted
	code *int16 // of its part of the answer, if that has one
}

func (t *changingTopic) done(img *image) bool {
	found := img.byID[t.id]
	if t.gone {
		return found == nil
	}
	return found != nil && !slices.ContainsFunc(found.partitions, func(a assignment) bool { return a.leader == noLeader })
}

// wait parks the answer until all is done, or answers if nothing is to do.
func (o *topicsChange) wait(c *conn, timeout time.Duration) {
	if len(o.waiting) == 0 {
		o.answer()
		return
	}
	names := make([]string, len(o.waiting))
	for i, t := range o.waiting {
		names[i] = t.name
	}
	_, err := c.srv.changes.TryCompleteElseWatch(c.ctx, o, timeout, names...)
	if c.srv.notParked(err) {
		o.answer()
	}
}

// TryComplete reports whether this broker knows of all of it.
func (o *topicsChange) TryComplete() bool {
	img := o.srv.image()
	return !slices.ContainsFunc(o.waiting, func(t changingTopic) bool { return !t.done(img) })
}

// Complete runs where this broker learns of the topics, or on a worker.
func (o *topicsChange) Complete(outcome purgatory.Outcome, _ error) {
	o.srv.settle(topicsOperation, outcome, o.arrived, o.reply, o.answer)
}

func (o *topicsChange) answer() {
	img := o.srv.image()
	for _, t := range o.waiting {
		if t.code != nil && !t.done(img) { // it will be, all the same
			*t.code = code(kerr.RequestTimedOut)
		}
	}
	o.reply.answer(o.build)
}

// announceTopics completes what waits for topics that have come.
func (s *server) announceTopics(before, now *image) {
	for id, t := range now.byID {
		if before.byID[id] != t {
			s.changes.CheckAndComplete(t.name)
		}
	}
	for id, t := range before.byID {
		if now.byID[id] == nil {
			s.changes.CheckAndComplete(t.name)
		}
	}
}

func handleCreateTopics(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.CreateTopicsRequest)
	resp := q.ResponseKind().(*kmsg.CreateTopicsResponse)
	op := &topicsChange{srv: c.srv, reply: r, build: func() kmsg.Response { return resp }, arrived: time.Now()}
	asked := map[string]int{}
	for i := range q.Topics {
		asked[q.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, len(q.Topics))
	for i := range q.Topics {
		rt, st := &q.Topics[i], &resp.Topics[i]
		st.Default()
		st.Topic = rt.Topic
		made, bad := c.srv.createTopic(rt, asked[rt.Topic] > 1, q.ValidateOnly)
		if bad != nil {
			st.ErrorCode, st.ErrorMessage = code(bad.code), kmsg.StringPtr(bad.message)
			st.NumPartitions, st.ReplicationFactor = -1, -1
			continue
		}
		st.NumPartitions, st.ReplicationFactor = int32(len(made.partitions)), int16(len(made.partitions[0].replicas))
		if !q.ValidateOnly {
			st.TopicID = made.id
			op.waiting = append(op.waiting, changingTopic{name: made.name, id: made.id, code: &st.ErrorCode})
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}

func (s *server) createTopic(rt *kmsg.CreateTopicsRequestTopic, twice, validateOnly bool) (*topic, *badTopic) {
	if twice {
		return nil, &badTopic{kerr.InvalidRequest, "topic is named twice in this request"}
	}
	shape, bad := shapeOf(rt, s.cfg.retentionBytes)
	if bad != nil {
		return nil, bad
	}
	made, err := s.cluster.controller.create(strings.Clone(rt.Topic), shape, validateOnly)
	if err != nil {
		return nil, &badTopic{err, err.Description}
	}
	return made, nil
}

type badTopic struct {
	code    *kerr.Error
	message string
}

// shapeOf reads what a topic is to look like. What this broker cannot do is
// refused, not ignored.
func shapeOf(rt *kmsg.CreateTopicsRequestTopic, maxRetention int64) (topicShape, *badTopic) {
	shape := topicShape{partitions: rt.NumPartitions, replication: rt.ReplicationFactor}
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return shape, &badTopic{kerr.InvalidRequest, "both counts and an assignment"}
		}
		for i, a := range rt.ReplicaAssignment {
			if a.Partition != int32(i) {
				return shape, &badTopic{kerr.InvalidReplicaAssignment, "partitions must be assigned in order, from 0 on"}
			}
			shape.replicas = append(shape.replicas, slices.Clone(a.Replicas))
		}
	}
	for _, config := range rt.Configs {
		limit := map[string]int64{"retention.bytes": maxRetention, "min.insync.replicas": 1<<31 - 1}[config.Name]
		if limit == 0 || config.Value == nil {
			return shape, &badTopic{kerr.InvalidConfig, "only retention.bytes and min.insync.replicas can be set"}
		}
		n, err := strconv.ParseInt(*config.Value, 10, 64)
		if err != nil || n <= 0 || n > limit {
			return shape, &badTopic{kerr.InvalidConfig, fmt.Sprintf("%s must be from 1 to %d here", config.Name, limit)}
		}
		if config.Name == "retention.bytes" {
			shape.retention = n
		} else {
			shape.minISR = int32(n)
		}
	}
	return shape, nil
}

func handleDeleteTopics(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.DeleteTopicsRequest)
	resp := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
	op := &topicsChange{srv: c.srv, reply: r, build: func() kmsg.Response { return resp }, arrived: time.Now()}
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, 0, len(q.TopicNames)+len(q.Topics)) // its elements stay where they are
	img := c.srv.cluster.controller.image()
	del := func(found *topic, name *string, id topicID, unknown *kerr.Error) {
		resp.Topics = append(resp.Topics, kmsg.NewDeleteTopicsResponseTopic())
		st := &resp.Topics[len(resp.Topics)-1]
		st.Topic, st.TopicID = name, id
		switch {
		case found == nil:
			st.ErrorCode = code(unknown)
			return
		case found.internal:
			st.ErrorCode = code(kerr.PolicyViolation)
			return
		case !c.srv.cluster.controller.remove(found.id):
			st.ErrorCode = code(unknown)
			return
		}
		st.Topic, st.TopicID = kmsg.StringPtr(found.name), found.id
		op.waiting = append(op.waiting, changingTopic{name: found.name, id: found.id, gone: true, code: &st.ErrorCode})
	}
	for i := range q.TopicNames {
		del(img.byName[q.TopicNames[i]], &q.TopicNames[i], topicID{}, kerr.UnknownTopicOrPartition)
	}
	for _, rt := range q.Topics {
		if rt.Topic != nil {
			del(img.byName[*rt.Topic], rt.Topic, rt.TopicID, kerr.UnknownTopicOrPartition)
		} else {
			del(img.byID[rt.TopicID], nil, rt.TopicID, kerr.UnknownTopicID)
		}
	}
	op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
}
