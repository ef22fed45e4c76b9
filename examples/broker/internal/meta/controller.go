package meta

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// Controller decides for the cluster: which brokers live, what topics there
// are, who replicates and who leads. In Kafka it is a quorum of its own; here
// it is an object of the process that brokers talk to by calls. All the same a
// broker learns of a decision only when it comes to ask for it, so a paused one
// acts on an old image and has to be fenced.
//
// That a broker lives is a deadline pushed out by its heartbeats: keyed.Table.
//
// Lock order: mu is a leaf, but for the wheel's own.
type Controller struct {
	cfg       Config
	sessions  *keyed.Table[int32, Incarnation]
	current   atomic.Pointer[Image]
	producers atomic.Int64 // ids given out

	mu      sync.Mutex
	live    map[int32]Incarnation // guarded by mu
	last    Incarnation           // guarded by mu
	placed  int                   // partitions ever placed: where the next begins; guarded by mu
	changed chan struct{}         // closed when current is another; guarded by mu
	closed  bool                  // no elections any more; guarded by mu
}

// Config is what the controller decides by. The zero value of a field is its default.
type Config struct {
	DefaultPartitions int32 // of topics created without a count
	MaxTopics         int
	MaxPartitions     int   // over all topics
	RetentionBytes    int64 // kept per partition, of topics created without a number

	Replication       int16 // replicas of topics created without a number, and of the offsets topic
	MinISR            int32 // in-sync replicas that acks=all asks for, of topics created without a number
	OffsetsPartitions int32

	BrokerSession time.Duration // a broker that is silent for longer is not alive
	Tick          time.Duration // of its timing wheel
}

// WithDefaults fills in what is zero and refuses what is out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Meta.DefaultPartitions", &c.DefaultPartitions, 1, 1, 1<<20)
	option.Fill(&b, "Meta.MaxTopics", &c.MaxTopics, 1024, 1, 1<<20)
	option.Fill(&b, "Meta.MaxPartitions", &c.MaxPartitions, 4096, 1, 1<<20)
	option.Fill(&b, "Meta.RetentionBytes", &c.RetentionBytes, 64<<20, 1, 1<<50)
	option.Fill(&b, "Meta.Replication", &c.Replication, 3, 1, 1<<10)
	option.Fill(&b, "Meta.MinISR", &c.MinISR, 2, 1, int32(c.Replication))
	option.Fill(&b, "Meta.OffsetsPartitions", &c.OffsetsPartitions, 4, 1, 1<<10)
	option.Fill(&b, "Meta.BrokerSession", &c.BrokerSession, 2*time.Second, time.Millisecond, 24*time.Hour)
	option.Fill(&b, "Meta.Tick", &c.Tick, time.Millisecond, time.Microsecond, time.Minute)
	return c, b.Err
}

// Incarnation tells a broker from the one that had its id before a restart.
type Incarnation uint64

// NewController makes a controller. cfg is as WithDefaults has returned it.
func NewController(cfg Config) (*Controller, error) {
	c := &Controller{cfg: cfg, live: map[int32]Incarnation{}, changed: make(chan struct{})}
	c.current.Store(&Image{ByName: map[string]*Topic{}, ByID: map[TopicID]*Topic{}})
	var err error
	c.sessions, err = keyed.New(c.Fence, timingwheel.Options{Tick: cfg.Tick})
	return c, err
}

// Shutdown ends the controller, and the goroutines of its sessions.
func (c *Controller) Shutdown(ctx context.Context) error {
	c.Close()
	_, err := c.sessions.Shutdown(ctx, timingwheel.Discard)
	return err
}

// Image returns the latest image.
func (c *Controller) Image() *Image { return c.current.Load() }

// Newer waits for an image of a higher version than the one given.
func (c *Controller) Newer(ctx context.Context, version int64) (*Image, error) {
	for {
		c.mu.Lock()
		img, changed := c.Image(), c.changed
		c.mu.Unlock()
		if img.Version > version {
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
func (c *Controller) publishLocked(next *Image) {
	c.current.Store(next)
	close(c.changed)
	c.changed = make(chan struct{})
}

// NextProducerID is one that no producer of this cluster ever had.
func (c *Controller) NextProducerID() int64 { return c.producers.Add(1) }

// Register takes a broker in. Partitions that had no leader may have one now.
func (c *Controller) Register(n Node) (Incarnation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, timingwheel.ErrClosed
	}
	next := c.Image().next()
	if _, ok := c.live[n.ID]; ok {
		c.leaveLocked(next, n.ID) // what it led before its restart it may not lead on
	}
	c.last++
	c.live[n.ID] = c.last
	next.Nodes = append(next.Nodes, n)
	slices.SortFunc(next.Nodes, func(a, b Node) int { return int(a.ID - b.ID) })
	for _, t := range next.ByID {
		for i, a := range t.Partitions {
			if a.Leader == NoLeader {
				c.electLocked(next, PartitionKey{t.ID, int32(i)}, a)
			}
		}
	}
	c.publishLocked(next)
	if err := c.sessions.Set(n.ID, c.last, c.cfg.BrokerSession); err != nil {
		return 0, err
	}
	return c.last, nil
}

// Heartbeat renews a broker's session. It reports whether there is one: otherwise
// the broker was fenced, and must register again.
func (c *Controller) Heartbeat(id int32, i Incarnation) bool {
	c.mu.Lock()
	lives := c.live[id] == i
	c.mu.Unlock()
	return lives && c.sessions.Touch(id, c.cfg.BrokerSession) == nil
}

// Unregister fences a broker that is about to stop, so that others lead before it
// goes. Where there are no others nothing changes: what it holds it may answer
// to the last.
func (c *Controller) Unregister(id int32, i Incarnation) {
	if len(c.Image().Nodes) > 1 {
		c.Fence(id, i)
	}
}

// Close ends all deciding: the whole cluster is about to stop.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Fence takes a broker out: its session has ended, or it has said goodbye.
func (c *Controller) Fence(id int32, i Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.live[id] != i {
		return
	}
	next := c.Image().next()
	c.leaveLocked(next, id)
	c.publishLocked(next)
}

// leaveLocked takes a broker out of every in-sync set but those where it is the
// last one: who comes next must have all that was committed, so such a
// partition waits for it, without a leader.
func (c *Controller) leaveLocked(next *Image, id int32) {
	delete(c.live, id)
	next.Nodes = slices.DeleteFunc(next.Nodes, func(n Node) bool { return n.ID == id })
	for _, t := range next.ByID {
		for i, a := range t.Partitions {
			if !slices.Contains(a.ISR, id) {
				continue
			}
			if len(a.ISR) > 1 {
				a.ISR = Without(a.ISR, id)
			}
			key := PartitionKey{t.ID, int32(i)}
			if a.Leader == id {
				c.electLocked(next, key, a)
			} else {
				next.reassign(key, a)
			}
		}
	}
}

// electLocked makes the first live replica that is in sync the leader.
func (c *Controller) electLocked(next *Image, key PartitionKey, a Assignment) {
	was := a.Leader
	a.Leader = NoLeader
	for _, id := range a.Replicas {
		if _, lives := c.live[id]; lives && slices.Contains(a.ISR, id) {
			a.Leader = id
			break
		}
	}
	if a.Leader == was && was == NoLeader {
		return
	}
	a.Epoch++
	next.reassign(key, a)
}

// AlterISR is a leader's request to change the in-sync set of its partition. It
// is refused when the leader, or what it believes of the partition, is not of
// today.
func (c *Controller) AlterISR(leader int32, key PartitionKey, believed Assignment, isr []int32) *kerr.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, a := c.Image().Assignment(key)
	switch {
	case a == nil:
		return kerr.UnknownTopicID
	case c.closed, a.Leader != leader, a.Epoch != believed.Epoch:
		return kerr.FencedLeaderEpoch
	case a.Version != believed.Version:
		return kerr.InvalidUpdateVersion
	}
	for _, id := range isr {
		if _, lives := c.live[id]; !lives || !slices.Contains(a.Replicas, id) {
			return kerr.IneligibleReplica
		}
	}
	next := c.Image().next()
	changed := *a
	changed.ISR = isr
	if preferred := a.Replicas[0]; leader != preferred && slices.Contains(isr, preferred) {
		c.electLocked(next, key, changed) // it has caught up: leadership goes home
	} else {
		next.reassign(key, changed)
	}
	c.publishLocked(next)
	return nil
}

// Shape is what a topic is asked to be. Zero and -1 take the defaults.
type Shape struct {
	Partitions  int32
	Replication int16
	Retention   int64
	MinISR      int32
	Internal    bool
	Replicas    [][]int32 // by partition; nil lets the controller choose
}

// Create makes a topic. With validateOnly it returns what it would do, and does
// nothing.
func (c *Controller) Create(name string, shape Shape, validateOnly bool) (*Topic, *kerr.Error) {
	if !ValidTopicName(name) || name == OffsetsTopic && !shape.Internal { // which only the coordinators make
		return nil, kerr.InvalidTopicException
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	img := c.Image()
	if found := img.ByName[name]; found != nil {
		return found, kerr.TopicAlreadyExists
	}
	made := &Topic{Name: name, Internal: shape.Internal, Retention: shape.Retention, MinISR: shape.MinISR}
	if made.Retention == 0 {
		made.Retention = c.cfg.RetentionBytes
	}
	replicas, err := c.placeLocked(shape)
	if err != nil {
		return nil, err
	}
	if made.MinISR == 0 {
		made.MinISR = min(c.cfg.MinISR, int32(len(replicas[0])))
	}
	if len(img.ByName) >= c.cfg.MaxTopics || img.partitions+len(replicas) > c.cfg.MaxPartitions {
		return nil, kerr.PolicyViolation
	}
	for _, ids := range replicas {
		a := Assignment{Replicas: ids, ISR: ids, Leader: ids[0]}
		made.Partitions = append(made.Partitions, a)
	}
	_, _ = rand.Read(made.ID[:]) // never fails since Go 1.24
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
func (c *Controller) placeLocked(shape Shape) ([][]int32, *kerr.Error) {
	nodes := c.Image().Nodes
	if shape.Replicas != nil {
		return shape.Replicas, c.checkReplicasLocked(shape.Replicas)
	}
	partitions, replication := shape.Partitions, shape.Replication
	if partitions == -1 {
		partitions = c.cfg.DefaultPartitions
	}
	if replication == -1 {
		replication = c.cfg.Replication
	}
	switch {
	case partitions <= 0:
		return nil, kerr.InvalidPartitions
	case int(partitions) > c.cfg.MaxPartitions:
		return nil, kerr.PolicyViolation
	case replication <= 0, int(replication) > len(nodes):
		return nil, kerr.InvalidReplicationFactor
	}
	all := make([][]int32, partitions)
	for i := range all {
		for r := range int(replication) {
			all[i] = append(all[i], nodes[(c.placed+i+r)%len(nodes)].ID)
		}
	}
	return all, nil
}

// checkReplicasLocked checks an assignment that a client has made.
func (c *Controller) checkReplicasLocked(replicas [][]int32) *kerr.Error {
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

// OffsetsTopic is where groups' coordinators keep what was committed.
const OffsetsTopic = "__consumer_offsets"

// CreateOffsetsTopic makes it, on first use.
func (c *Controller) CreateOffsetsTopic() *kerr.Error {
	if c.Image().ByName[OffsetsTopic] != nil {
		return nil
	}
	_, err := c.Create(OffsetsTopic, Shape{Partitions: c.cfg.OffsetsPartitions, Replication: -1, Internal: true}, false)
	if err == kerr.TopicAlreadyExists {
		return nil
	}
	return err
}

// Remove deletes a topic.
func (c *Controller) Remove(id TopicID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Image().ByID[id] == nil {
		return false
	}
	next := c.Image().next()
	next.remove(id)
	c.publishLocked(next)
	return true
}

// maxTopicName is Kafka's: a topic's directory once had to fit a file name.
const maxTopicName = 249

// ValidTopicName reports whether Kafka allows a topic of that name.
func ValidTopicName(name string) bool {
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
