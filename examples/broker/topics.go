package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topic never changes after it is made; its partitions do.
type topic struct {
	name       string
	id         topicID
	retention  int64 // bytes per partition
	partitions []*partition
}

// topics is the table of what exists.
type topics struct {
	cfg  *config
	kept atomic.Int64 // bytes in all logs; each partition adds its changes

	evicting sync.Mutex // one goroutine at a time brings kept down

	mu         sync.RWMutex // guards the rest
	byName     map[string]*topic
	byID       map[topicID]*topic
	partitions int // over all topics
}

func newTopics(cfg *config) *topics {
	return &topics{cfg: cfg, byName: map[string]*topic{}, byID: map[topicID]*topic{}}
}

// maxTopicName is Kafka's: a topic's directory once had to fit a file name.
const maxTopicName = 249

func validTopicName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > maxTopicName {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// create makes a topic. A partition count of -1 is the default one. With
// validateOnly it says what it would do, and does nothing.
func (t *topics) create(name string, partitions int32, retention int64, validateOnly bool) (*topic, *kerr.Error) {
	if partitions == -1 {
		partitions = t.cfg.defaultPartitions
	}
	switch {
	case !validTopicName(name):
		return nil, kerr.InvalidTopicException
	case partitions <= 0:
		return nil, kerr.InvalidPartitions
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.byName[name] != nil:
		return t.byName[name], kerr.TopicAlreadyExists
	case len(t.byName) >= t.cfg.maxTopics, int64(t.partitions)+int64(partitions) > int64(t.cfg.maxPartitions):
		return nil, kerr.PolicyViolation
	}
	made := &topic{name: name, retention: retention}
	_, _ = rand.Read(made.id[:]) // never fails since Go 1.24
	for i := range partitions {
		made.partitions = append(made.partitions, &partition{
			key:       partitionKey{made.id, i},
			topic:     made,
			sum:       &t.kept,
			producers: producerStates{},
		})
	}
	if !validateOnly {
		t.byName[name], t.byID[made.id] = made, made
		t.partitions += int(partitions)
	}
	return made, nil
}

// remove takes a topic out of the table and ends its partitions. The caller
// then checks their keys.
func (t *topics) remove(gone *topic) bool {
	t.mu.Lock()
	if t.byID[gone.id] != gone {
		t.mu.Unlock()
		return false
	}
	delete(t.byName, gone.name)
	delete(t.byID, gone.id)
	t.partitions -= len(gone.partitions)
	t.mu.Unlock()
	for _, p := range gone.partitions {
		p.remove()
	}
	return true
}

func (t *topics) named(name string) *topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byName[name]
}

func (t *topics) identified(id topicID) *topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

// all lists the topics by name.
func (t *topics) all() []*topic {
	t.mu.RLock()
	list := make([]*topic, 0, len(t.byName))
	for _, topic := range t.byName {
		list = append(list, topic)
	}
	t.mu.RUnlock()
	slices.SortFunc(list, func(a, b *topic) int { return cmp.Compare(a.name, b.name) })
	return list
}

// lookup finds a partition by name, or by id where the request's version has
// ids; the error is the one that fits the version.
func (t *topics) lookup(name string, id topicID, byID bool, index int32) (*partition, *kerr.Error) {
	var found *topic
	notFound := kerr.UnknownTopicOrPartition
	if byID {
		if found = t.identified(id); found == nil {
			notFound = kerr.UnknownTopicID
		}
	} else {
		found = t.named(name)
	}
	if found == nil || index < 0 || int(index) >= len(found.partitions) {
		return nil, notFound
	}
	return found.partitions[index], nil
}

// limitSum keeps all logs together below maxLogSum: the largest one loses a
// quarter, again and again, until a sixteenth is free. Producers call it after
// an append; it is a scan of all partitions, but once per sixteenth.
func (t *topics) limitSum() {
	if t.kept.Load() <= t.cfg.maxLogSum || !t.evicting.TryLock() {
		return
	}
	defer t.evicting.Unlock()
	for target := t.cfg.maxLogSum - t.cfg.maxLogSum/16; t.kept.Load() > target; {
		var largest *partition
		var size int64
		for _, topic := range t.all() {
			for _, p := range topic.partitions {
				if n := p.kept(); n > size {
					largest, size = p, n
				}
			}
		}
		before := t.kept.Load()
		if largest == nil {
			return
		}
		largest.free(size - size/4)
		if t.kept.Load() >= before {
			return // single huge batches; nothing more can go
		}
	}
}

func handleCreateTopics(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.CreateTopicsRequest)
	resp := q.ResponseKind().(*kmsg.CreateTopicsResponse)
	asked := map[string]int{}
	for i := range q.Topics {
		asked[q.Topics[i].Topic]++
	}
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewCreateTopicsResponseTopic()
		st.Topic = rt.Topic
		fail := func(e *kerr.Error, format string, args ...any) {
			st.ErrorCode = code(e)
			st.NumPartitions, st.ReplicationFactor = -1, -1
			st.ErrorMessage = kmsg.StringPtr(fmt.Sprintf(format, args...))
		}
		partitions, retention, bad := topicShape(rt, c.srv.cfg.retentionBytes)
		switch {
		case asked[rt.Topic] > 1:
			fail(kerr.InvalidRequest, "topic is named twice in this request")
		case bad != nil:
			fail(bad.code, "%s", bad.message)
		default:
			made, err := c.srv.topics.create(rt.Topic, partitions, retention, q.ValidateOnly)
			if err != nil {
				fail(err, "%s", err.Description)
				break
			}
			if !q.ValidateOnly {
				st.TopicID = made.id
			}
			st.NumPartitions, st.ReplicationFactor = int32(len(made.partitions)), 1
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.now(resp)
}

type badTopic struct {
	code    *kerr.Error
	message string
}

// topicShape reads what a topic is to look like. What this broker cannot do is
// refused, not ignored.
func topicShape(rt *kmsg.CreateTopicsRequestTopic, retention int64) (int32, int64, *badTopic) {
	partitions := rt.NumPartitions
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return 0, 0, &badTopic{kerr.InvalidRequest, "both counts and an assignment"}
		}
		for i, a := range rt.ReplicaAssignment {
			if a.Partition != int32(i) || !slices.Equal(a.Replicas, []int32{nodeID}) {
				return 0, 0, &badTopic{kerr.InvalidReplicaAssignment, "the only node is 0"}
			}
		}
		partitions = int32(len(rt.ReplicaAssignment))
	} else if rt.ReplicationFactor != 1 && rt.ReplicationFactor != -1 {
		return 0, 0, &badTopic{kerr.InvalidReplicationFactor, "there is one node"}
	}
	for _, config := range rt.Configs {
		if config.Name != "retention.bytes" || config.Value == nil {
			return 0, 0, &badTopic{kerr.InvalidConfig, "only retention.bytes can be set"}
		}
		n, err := strconv.ParseInt(*config.Value, 10, 64)
		if err != nil || n <= 0 || n > retention {
			return 0, 0, &badTopic{kerr.InvalidConfig, fmt.Sprintf("retention.bytes must be from 1 to %d here", retention)}
		}
		retention = n
	}
	return partitions, retention, nil
}

func handleDeleteTopics(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.DeleteTopicsRequest)
	resp := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
	del := func(found *topic, st *kmsg.DeleteTopicsResponseTopic, notFound *kerr.Error) {
		if found == nil || !c.srv.topics.remove(found) {
			st.ErrorCode = code(notFound)
			return
		}
		st.Topic, st.TopicID = kmsg.StringPtr(found.name), found.id
		for _, p := range found.partitions {
			c.srv.purgatory.CheckAndComplete(p.key)
		}
	}
	for i := range q.TopicNames {
		st := kmsg.NewDeleteTopicsResponseTopic()
		st.Topic = &q.TopicNames[i]
		del(c.srv.topics.named(q.TopicNames[i]), &st, kerr.UnknownTopicOrPartition)
		resp.Topics = append(resp.Topics, st)
	}
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewDeleteTopicsResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		if rt.Topic != nil {
			del(c.srv.topics.named(*rt.Topic), &st, kerr.UnknownTopicOrPartition)
		} else {
			del(c.srv.topics.identified(rt.TopicID), &st, kerr.UnknownTopicID)
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.now(resp)
}
