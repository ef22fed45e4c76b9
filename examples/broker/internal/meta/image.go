package meta

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"
)

// Image is the cluster's metadata at one moment: the live brokers, the topics, and the leader of
// each partition. The controller publishes a new image for each change and never modifies a
// published one, so images are read without a lock. A broker acts on the latest image that it has
// received, which may not be the controller's latest.
type Image struct {
	Version    int64 // incremented by each change
	Nodes      []Node
	ByName     map[string]*Topic
	ByID       map[TopicID]*Topic
	partitions int // over all topics

	// Only used until the image is published.

	owned   map[TopicID]bool // topics that only this image holds, so they may be changed
	changes []change
}

// change is a change of a partition's assignment.
type change struct {
	topic         string
	index         int32
	before, after Assignment
}

// Node is a live broker and its address.
type Node struct {
	ID   int32
	Host string
	Port int32
}

// TopicID identifies a topic in Fetch 13 and Produce 13. Ids are never reused: a topic that is
// deleted and created again has a new id.
type TopicID [16]byte

// Topic is a topic of an image. It is immutable.
type Topic struct {
	Name       string
	ID         TopicID
	Internal   bool // the broker's own; clients may read it
	Partitions []Assignment
	Settings
}

// Settings are the topic settings that clients may choose.
type Settings struct {
	Retention     int64             // bytes per partition
	RetentionTime time.Duration     // 0: unlimited
	MinISR        int32             // in-sync replicas that acks=all requires
	MaxBatch      int               // bytes of a batch; 0: the broker's limit
	Ignored       map[string]string // Kafka settings that have no effect here; immutable
}

// Assignment is the placement and leadership of a partition. It is immutable.
type Assignment struct {
	Replicas []int32 // the preferred leader first
	ISR      []int32 // the replicas that have every committed record
	Leader   int32   // one of ISR, or NoLeader
	Epoch    int32   // of the leader: incremented by each election
	Version  int32   // incremented by each change of any of these
}

// NoLeader is the Leader of a partition that has none.
const NoLeader = -1

// Addr returns its host:port.
func (n Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))) }

// PartitionKey identifies a partition. It holds the topic's id, not its name, so that no request
// waits on a later topic of the same name.
type PartitionKey struct {
	Topic TopicID
	Index int32
}

// Node returns a live broker.
func (i *Image) Node(id int32) (Node, bool) {
	at := slices.IndexFunc(i.Nodes, func(n Node) bool { return n.ID == id })
	if at < 0 {
		return Node{}, false
	}
	return i.Nodes[at], true
}

// IsLive reports whether a broker is live.
func (i *Image) IsLive(id int32) bool {
	_, ok := i.Node(id)
	return ok
}

// All returns the topics, sorted by name.
func (i *Image) All() []*Topic {
	return slices.SortedFunc(maps.Values(i.ByName), func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// Assignment returns a partition's topic and assignment, nil if the partition does not exist.
func (i *Image) Assignment(key PartitionKey) (*Topic, *Assignment) {
	t := i.ByID[key.Topic]
	if t == nil || key.Index < 0 || int(key.Index) >= len(t.Partitions) {
		return nil, nil
	}
	return t, &t.Partitions[key.Index]
}

// The following methods change an image that is not published yet.

// next returns a copy to change.
func (i *Image) next() *Image {
	return &Image{
		Version:    i.Version + 1,
		Nodes:      slices.Clone(i.Nodes),
		ByName:     maps.Clone(i.ByName),
		ByID:       maps.Clone(i.ByID),
		partitions: i.partitions,
		owned:      map[TopicID]bool{},
	}
}

// takeChanges returns the changes of partitions and clears the list.
func (i *Image) takeChanges() (changes []change) {
	changes, i.changes = i.changes, nil
	return changes
}

func (i *Image) put(t *Topic) {
	i.remove(t.ID)
	i.ByName[t.Name], i.ByID[t.ID] = t, t
	i.partitions += len(t.Partitions)
}

func (i *Image) remove(id TopicID) {
	if t := i.ByID[id]; t != nil {
		delete(i.ByName, t.Name)
		delete(i.ByID, id)
		i.partitions -= len(t.Partitions)
	}
}

// reassign replaces a partition's assignment. It copies the topic and its list of partitions once,
// because earlier images share them.
func (i *Image) reassign(key PartitionKey, a Assignment) {
	t := i.ByID[key.Topic]
	if !i.owned[key.Topic] {
		changed := *t
		changed.Partitions = slices.Clone(t.Partitions)
		t = &changed
		i.ByName[t.Name], i.ByID[t.ID] = t, t
		i.owned[key.Topic] = true
	}
	before := t.Partitions[key.Index]
	a.Version = before.Version + 1
	t.Partitions[key.Index] = a
	i.changes = append(i.changes, change{t.Name, key.Index, before, a})
}

// Without returns a copy of ids without id.
func Without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}

// NodeAt returns a broker's entry in the metadata.
func NodeAt(id int32, addr net.Addr) Node {
	n := Node{ID: id, Host: "127.0.0.1"}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		n.Port = int32(tcp.Port)
		if tcp.IP != nil && !tcp.IP.IsUnspecified() {
			n.Host = tcp.IP.String()
		}
	}
	return n
}
