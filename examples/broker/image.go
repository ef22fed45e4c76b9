package main

import (
	"cmp"
	"maps"
	"slices"
)

// image is the cluster's metadata at one moment: which brokers live, which
// topics there are, who leads what. The controller makes a new one for each
// change and changes none it has made, so it is read without a lock. A broker
// acts on the latest it was given, which may not be the latest there is.
type image struct {
	version    int64 // one higher with each change
	nodes      []nodeInfo
	byName     map[string]*topic
	byID       map[topicID]*topic
	partitions int // over all topics
}

// nodeInfo is a live broker and where it listens.
type nodeInfo struct {
	id   int32
	host string
	port int32
}

// topicID is what Fetch 13 and Produce 13 name topics by. It never returns: a
// topic deleted and created again is another one.
type topicID [16]byte

// topic is one of an image's topics. It never changes.
type topic struct {
	name       string
	id         topicID
	internal   bool  // the broker's own; clients may read it
	retention  int64 // bytes per partition
	minISR     int32 // in-sync replicas that acks=all asks for
	partitions []assignment
}

// assignment is who holds a partition. It never changes.
type assignment struct {
	replicas []int32 // the preferred leader first
	isr      []int32 // those of them that have all that was committed
	leader   int32   // one of isr, or noLeader
	epoch    int32   // of the leader: one higher with each election
	version  int32   // one higher with each change of any of these
}

const noLeader = -1

// partitionKey names a partition. The id, not the name, so that nobody waits on
// a topic's namesake.
type partitionKey struct {
	topic topicID
	index int32
}

func (i *image) node(id int32) (nodeInfo, bool) {
	at := slices.IndexFunc(i.nodes, func(n nodeInfo) bool { return n.id == id })
	if at < 0 {
		return nodeInfo{}, false
	}
	return i.nodes[at], true
}

func (i *image) lives(id int32) bool {
	_, ok := i.node(id)
	return ok
}

// all lists the topics by name.
func (i *image) all() []*topic {
	return slices.SortedFunc(maps.Values(i.byName), func(a, b *topic) int { return cmp.Compare(a.name, b.name) })
}

// assignment finds a partition's, if it exists.
func (i *image) assignment(key partitionKey) (*topic, *assignment) {
	t := i.byID[key.topic]
	if t == nil || key.index < 0 || int(key.index) >= len(t.partitions) {
		return nil, nil
	}
	return t, &t.partitions[key.index]
}

// The following change an image that is not published yet.

// next is a copy to change.
func (i *image) next() *image {
	return &image{
		version:    i.version + 1,
		nodes:      slices.Clone(i.nodes),
		byName:     maps.Clone(i.byName),
		byID:       maps.Clone(i.byID),
		partitions: i.partitions,
	}
}

func (i *image) put(t *topic) {
	i.remove(t.id)
	i.byName[t.name], i.byID[t.id] = t, t
	i.partitions += len(t.partitions)
}

func (i *image) remove(id topicID) {
	if t := i.byID[id]; t != nil {
		delete(i.byName, t.name)
		delete(i.byID, id)
		i.partitions -= len(t.partitions)
	}
}

// reassign puts another assignment in the place of a partition's. The topic and
// its list are copied: images before this one have them, too.
func (i *image) reassign(key partitionKey, a assignment) {
	old := i.byID[key.topic]
	changed := *old
	changed.partitions = slices.Clone(old.partitions)
	a.version = old.partitions[key.index].version + 1
	changed.partitions[key.index] = a
	i.byName[changed.name], i.byID[changed.id] = &changed, &changed
}

func without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}
