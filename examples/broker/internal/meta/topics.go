package meta

import (
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicSpec is the requested partitions, replicas and settings of a topic. Zero and -1 mean the
// defaults.
type TopicSpec struct {
	Partitions  int32
	Replication int16
	Internal    bool
	Replicas    [][]int32 // by partition; nil: the controller chooses
	Settings
}

// Create creates a topic. With validateOnly it returns the topic that it would create, and changes
// nothing.
func (c *Controller) Create(name string, spec TopicSpec, validateOnly bool) (made *Topic, err *kerr.Error) {
	if !ValidTopicName(name) || name == OffsetsTopic && !spec.Internal { // which only the coordinators create
		return nil, kerr.InvalidTopicException
	}
	c.decide(func(next *Image) (string, bool) {
		if made = next.ByName[name]; made != nil {
			err = kerr.TopicAlreadyExists
			return "", false
		}
		var replicas [][]int32
		if replicas, err = c.placeLocked(spec); err != nil {
			return "", false
		}
		if len(next.ByName) >= c.cfg.MaxTopics || next.partitions+len(replicas) > c.cfg.MaxPartitions {
			err = kerr.PolicyViolation
			return "", false
		}
		made = &Topic{Name: name, Internal: spec.Internal, Settings: spec.Settings}
		c.fillIn(&made.Settings, len(replicas[0]))
		for _, ids := range replicas {
			made.Partitions = append(made.Partitions, Assignment{Replicas: ids, ISR: ids, Leader: ids[0]})
		}
		_, _ = rand.Read(made.ID[:]) // never fails since Go 1.24
		if validateOnly {
			return "", false
		}
		c.placed += len(replicas)
		next.put(made)
		return fmt.Sprintf("topic %s is created", name), true
	})
	return made, err
}

// fillIn sets zero fields to their defaults.
func (c *Controller) fillIn(s *Settings, replicas int) {
	if s.Retention == 0 {
		s.Retention = c.cfg.RetentionBytes
	}
	if s.MinISR == 0 {
		s.MinISR = min(c.cfg.MinISR, int32(replicas))
	}
}

// Configure changes a topic's settings. Zero means a default. It reports whether the topic exists
// and is not internal.
func (c *Controller) Configure(id TopicID, change func(*Settings)) (ok bool) {
	c.decide(func(next *Image) (string, bool) {
		t := next.ByID[id]
		if ok = t != nil && !t.Internal; !ok {
			return "", false
		}
		changed := *t
		change(&changed.Settings)
		c.fillIn(&changed.Settings, len(t.Partitions[0].Replicas))
		next.put(&changed)
		return fmt.Sprintf("topic %s has other settings", t.Name), true
	})
	return ok
}

// Grow adds partitions to a topic until it has count. replicas belong to the new partitions; nil
// lets the controller choose. With validateOnly it returns the topic as it would become, and
// changes nothing.
func (c *Controller) Grow(name string, count int32, replicas [][]int32, validateOnly bool) (grown *Topic, err *kerr.Error) {
	c.decide(func(next *Image) (string, bool) {
		t := next.ByName[name]
		switch {
		case t == nil:
			err = kerr.UnknownTopicOrPartition
		case t.Internal:
			err = kerr.InvalidTopicException
		case int(count) <= len(t.Partitions), replicas != nil && len(replicas) != int(count)-len(t.Partitions):
			err = kerr.InvalidPartitions
		}
		if err != nil {
			return "", false
		}
		more, each := int(count)-len(t.Partitions), len(t.Partitions[0].Replicas)
		spec := TopicSpec{Partitions: int32(more), Replication: int16(each), Replicas: replicas}
		if replicas, err = c.placeLocked(spec); err == nil && (len(replicas[0]) != each || next.partitions+more > c.cfg.MaxPartitions) {
			err = kerr.PolicyViolation
		}
		if err != nil {
			return "", false
		}
		changed := *t
		changed.Partitions = slices.Clone(t.Partitions)
		for _, ids := range replicas {
			changed.Partitions = append(changed.Partitions, Assignment{Replicas: ids, ISR: ids, Leader: ids[0]})
		}
		grown = &changed
		if validateOnly {
			return "", false
		}
		c.placed += more
		next.put(grown)
		return fmt.Sprintf("topic %s has %d partitions", name, count), true
	})
	return grown, err
}

// placeLocked chooses each partition's replicas from the live brokers round-robin, so that each one
// leads and follows equally often.
func (c *Controller) placeLocked(spec TopicSpec) ([][]int32, *kerr.Error) {
	nodes := c.Image().Nodes
	if spec.Replicas != nil {
		return spec.Replicas, c.checkReplicasLocked(spec.Replicas)
	}
	partitions, replication := spec.Partitions, spec.Replication
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

// checkReplicasLocked checks an assignment that a client requested.
func (c *Controller) checkReplicasLocked(replicas [][]int32) *kerr.Error {
	for _, ids := range replicas {
		if len(ids) == 0 || len(ids) != len(replicas[0]) {
			return kerr.InvalidReplicaAssignment
		}
		for i, id := range ids {
			if _, live := c.live[id]; !live || slices.Contains(ids[:i], id) {
				return kerr.InvalidReplicaAssignment
			}
		}
	}
	return nil
}

// OffsetsTopic is the topic in which group coordinators store committed offsets.
const OffsetsTopic = "__consumer_offsets"

// CreateOffsetsTopic creates the offsets topic on first use.
func (c *Controller) CreateOffsetsTopic() *kerr.Error {
	if c.Image().ByName[OffsetsTopic] != nil {
		return nil
	}
	_, err := c.Create(OffsetsTopic, TopicSpec{Partitions: c.cfg.OffsetsPartitions, Replication: -1, Internal: true}, false)
	if err == kerr.TopicAlreadyExists {
		return nil
	}
	return err
}

// Remove deletes a topic.
func (c *Controller) Remove(id TopicID) (ok bool) {
	c.decide(func(next *Image) (string, bool) {
		t := next.ByID[id]
		if ok = t != nil; !ok {
			return "", false
		}
		next.remove(id)
		return fmt.Sprintf("topic %s is deleted", t.Name), true
	})
	return ok
}

// maxTopicName is Kafka's limit: a topic's name is part of a directory's name there.
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
