package meta

import (
	"crypto/rand"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

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
