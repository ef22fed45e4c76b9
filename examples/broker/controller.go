package main

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// controller decides for the cluster: which brokers live, what topics there
// are, who replicates and who leads. In Kafka it is a quorum of its own; here
// it is an object of the process that brokers talk to by calls. All the same a
// broker learns of a decision only when it comes to ask for it, so a paused one
// acts on an old image and has to be fenced.
//
// That a broker lives is a deadline pushed out by its heartbeats: keyed.Table.
//
// Lock order: mu is a leaf, but for the wheel's own.
type controller struct {
	cfg       *config
	sessions  *keyed.Table[int32, incarnation]
	current   atomic.Pointer[image]
	producers atomic.Int64 // ids given out

	mu      sync.Mutex
	live    map[int32]incarnation // guarded by mu
	last    incarnation           // guarded by mu
	placed  int                   // partitions ever placed: where the next begins; guarded by mu
	changed chan struct{}         // closed when current is another; guarded by mu
	closed  bool                  // no elections any more; guarded by mu
}

// incarnation tells a broker from the one that had its id before a restart.
type incarnation uint64

func newController(cfg *config) (*controller, error) {
	c := &controller{cfg: cfg, live: map[int32]incarnation{}, changed: make(chan struct{})}
	c.current.Store(&image{byName: map[string]*topic{}, byID: map[topicID]*topic{}})
	var err error
	c.sessions, err = keyed.New(c.fence, timingwheel.Options{Tick: cfg.tick})
	return c, err
}

func (c *controller) shutdown(ctx context.Context) error {
	c.close()
	_, err := c.sessions.Shutdown(ctx, timingwheel.Discard)
	return err
}

func (c *controller) image() *image { return c.current.Load() }

// newer waits for an image of a higher version than the one given.
func (c *controller) newer(ctx context.Context, version int64) (*image, error) {
	for {
		c.mu.Lock()
		img, changed := c.image(), c.changed
		c.mu.Unlock()
		if img.version > version {
			return img, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publishLocked makes next the image that brokers are given.
func (c *controller) publishLocked(next *image) {
	c.current.Store(next)
	close(c.changed)
	c.changed = make(chan struct{})
}

// nextProducerID is one that no producer of this cluster ever had.
func (c *controller) nextProducerID() int64 { return c.producers.Add(1) }

// register takes a broker in. Partitions that had no leader may have one now.
func (c *controller) register(n nodeInfo) (incarnation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, timingwheel.ErrClosed
	}
	next := c.image().next()
	if _, ok := c.live[n.id]; ok {
		c.leaveLocked(next, n.id) // what it led before its restart it may not lead on
	}
	c.last++
	c.live[n.id] = c.last
	next.nodes = append(next.nodes, n)
	slices.SortFunc(next.nodes, func(a, b nodeInfo) int { return int(a.id - b.id) })
	for _, t := range next.byID {
		for i, a := range t.partitions {
			if a.leader == noLeader {
				c.electLocked(next, partitionKey{t.id, int32(i)}, a)
			}
		}
	}
	c.publishLocked(next)
	if err := c.sessions.Set(n.id, c.last, c.cfg.brokerSession); err != nil {
		return 0, err
	}
	return c.last, nil
}

// heartbeat renews a broker's session. It reports whether there is one: otherwise
// the broker was fenced, and must register again.
func (c *controller) heartbeat(id int32, i incarnation) bool {
	c.mu.Lock()
	lives := c.live[id] == i
	c.mu.Unlock()
	return lives && c.sessions.Touch(id, c.cfg.brokerSession) == nil
}

// unregister fences a broker that is about to stop, so that others lead before it
// goes. Where there are no others nothing changes: what it holds it may answer
// to the last.
func (c *controller) unregister(id int32, i incarnation) {
	if len(c.image().nodes) > 1 {
		c.fence(id, i)
	}
}

// close ends all deciding: the whole cluster is about to stop.
func (c *controller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// fence takes a broker out: its session has ended, or it has said goodbye.
func (c *controller) fence(id int32, i incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.live[id] != i {
		return
	}
	next := c.image().next()
	c.leaveLocked(next, id)
	c.publishLocked(next)
}

// leaveLocked takes a broker out of every in-sync set but those where it is the
// last one: who comes next must have all that was committed, so such a
// partition waits for it, without a leader.
func (c *controller) leaveLocked(next *image, id int32) {
	delete(c.live, id)
	next.nodes = slices.DeleteFunc(next.nodes, func(n nodeInfo) bool { return n.id == id })
	for _, t := range next.byID {
		for i, a := range t.partitions {
			if !slices.Contains(a.isr, id) {
				continue
			}
			if len(a.isr) > 1 {
				a.isr = without(a.isr, id)
			}
			key := partitionKey{t.id, int32(i)}
			if a.leader == id {
				c.electLocked(next, key, a)
			} else {
				next.reassign(key, a)
			}
		}
	}
}

// electLocked makes the first live replica that is in sync the leader.
func (c *controller) electLocked(next *image, key partitionKey, a assignment) {
	was := a.leader
	a.leader = noLeader
	for _, id := range a.replicas {
		if _, lives := c.live[id]; lives && slices.Contains(a.isr, id) {
			a.leader = id
			break
		}
	}
	if a.leader == was && was == noLeader {
		return
	}
	a.epoch++
	next.reassign(key, a)
}

// alterISR is a leader's request to change the in-sync set of its partition. It
// is refused when the leader, or what it believes of the partition, is not of
// today.
func (c *controller) alterISR(leader int32, key partitionKey, believed assignment, isr []int32) *kerr.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, a := c.image().assignment(key)
	switch {
	case a == nil:
		return kerr.UnknownTopicID
	case c.closed, a.leader != leader, a.epoch != believed.epoch:
		return kerr.FencedLeaderEpoch
	case a.version != believed.version:
		return kerr.InvalidUpdateVersion
	}
	for _, id := range isr {
		if _, lives := c.live[id]; !lives || !slices.Contains(a.replicas, id) {
			return kerr.IneligibleReplica
		}
	}
	next := c.image().next()
	changed := *a
	changed.isr = isr
	if preferred := a.replicas[0]; leader != preferred && slices.Contains(isr, preferred) {
		c.electLocked(next, key, changed) // it has caught up: leadership goes home
	} else {
		next.reassign(key, changed)
	}
	c.publishLocked(next)
	return nil
}

// topicShape is what a topic is asked to be. Zero and -1 take the defaults.
type topicShape struct {
	partitions  int32
	replication int16
	retention   int64
	minISR      int32
	internal    bool
	replicas    [][]int32 // by partition; nil lets the controller choose
}

// create makes a topic. With validateOnly it returns what it would do, and does
// nothing.
func (c *controller) create(name string, shape topicShape, validateOnly bool) (*topic, *kerr.Error) {
	if !validTopicName(name) || name == offsetsTopic && !shape.internal { // which only the coordinators make
		return nil, kerr.InvalidTopicException
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	img := c.image()
	if found := img.byName[name]; found != nil {
		return found, kerr.TopicAlreadyExists
	}
	made := &topic{name: name, internal: shape.internal, retention: shape.retention, minISR: shape.minISR}
	if made.retention == 0 {
		made.retention = c.cfg.retentionBytes
	}
	replicas, err := c.placeLocked(shape)
	if err != nil {
		return nil, err
	}
	if made.minISR == 0 {
		made.minISR = min(c.cfg.minISR, int32(len(replicas[0])))
	}
	if len(img.byName) >= c.cfg.maxTopics || img.partitions+len(replicas) > c.cfg.maxPartitions {
		return nil, kerr.PolicyViolation
	}
	for _, ids := range replicas {
		a := assignment{replicas: ids, isr: ids, leader: ids[0]}
		made.partitions = append(made.partitions, a)
	}
	_, _ = rand.Read(made.id[:]) // never fails since Go 1.24
	if validateOnly {
		return made, nil
	}
	c.placed += len(replicas)
	next := img.next()
	next.put(made)
	c.publishLocked(next)
	return made, nil
}

// placeLocked chooses each partition's replicas: live brokers, in turn, so that
// every one leads and follows equally often.
func (c *controller) placeLocked(shape topicShape) ([][]int32, *kerr.Error) {
	nodes := c.image().nodes
	if shape.replicas != nil {
		return shape.replicas, c.checkReplicasLocked(shape.replicas)
	}
	partitions, replication := shape.partitions, shape.replication
	if partitions == -1 {
		partitions = c.cfg.defaultPartitions
	}
	if replication == -1 {
		replication = c.cfg.replication
	}
	switch {
	case partitions <= 0:
		return nil, kerr.InvalidPartitions
	case int(partitions) > c.cfg.maxPartitions:
		return nil, kerr.PolicyViolation
	case replication <= 0, int(replication) > len(nodes):
		return nil, kerr.InvalidReplicationFactor
	}
	all := make([][]int32, partitions)
	for i := range all {
		for r := range int(replication) {
			all[i] = append(all[i], nodes[(c.placed+i+r)%len(nodes)].id)
		}
	}
	return all, nil
}

// checkReplicasLocked checks an assignment that a client has made.
func (c *controller) checkReplicasLocked(replicas [][]int32) *kerr.Error {
	for _, ids := range replicas {
		if len(ids) == 0 || len(ids) != len(replicas[0]) {
			return kerr.InvalidReplicaAssignment
		}
		for i, id := range ids {
			if _, lives := c.live[id]; !lives || slices.Contains(ids[:i], id) {
				return kerr.InvalidReplicaAssignment
			}
		}
	}
	return nil
}

// offsetsTopic is where groups' coordinators keep what was committed.
const offsetsTopic = "__consumer_offsets"

// createOffsetsTopic makes it, on first use.
func (c *controller) createOffsetsTopic() *kerr.Error {
	if c.image().byName[offsetsTopic] != nil {
		return nil
	}
	_, err := c.create(offsetsTopic, topicShape{partitions: c.cfg.offsetsPartitions, replication: -1, internal: true}, false)
	if err == kerr.TopicAlreadyExists {
		return nil
	}
	return err
}

// remove deletes a topic.
func (c *controller) remove(id topicID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.image().byID[id] == nil {
		return false
	}
	next := c.image().next()
	next.remove(id)
	c.publishLocked(next)
	return true
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
