package meta

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"
)

// Image is the cluster's metadata at one moment: which brokers live, which
// topics there are, who leads what. The controller makes a new one for each
// change and changes none it has made, so it is read without a lock. A broker
// acts on the latest it was given, which may not be the latest there is.
type Image struct {
	Version    int64 // one higher with each change
	Nodes      []Node
	ByName     map[string]*Topic
	ByID       map[TopicID]*Topic
	partitions int // over all topics

	// Of one that is not published yet.

	own     map[TopicID]bool // topics that are this image's alone, to be changed
	changes []change
}

// change is one of a partition.
type change struct {
	topic         string
	index         int32
	before, after Assignment
}

// Node is a live broker and where it listens.
type Node struct {
	ID   int32
	Host string
	Port int32
}

// TopicID is what Fetch 13 and Produce 13 name topics by. It never returns: a
// topic deleted and created again is another one.
type TopicID [16]byte

// Topic is one of an image's topics. It never changes.
type Topic struct {
	Name       string
	ID         TopicID
	Internal   bool // the broker's own; clients may read it
	Partitions []Assignment
	Settings
}

// Settings are what clients may choose of a topic.
type Settings struct {
	Retention     int64             // bytes per partition
	RetentionTime time.Duration     // 0: for ever
	MinISR        int32             // in-sync replicas that acks=all asks for
	MaxBatch      int               // bytes of a batch; 0: as many as the broker takes
	Noted         map[string]string // those of Kafka's that have no meaning here; it never changes
}

// Assignment is who holds a partition. It never changes.
type Assignment struct {
	Replicas []int32 // the preferred leader first
	ISR      []int32 // those of them that have all that was committed
	Leader   int32   // one of isr, or NoLeader
	Epoch    int32   // of the leader: one higher with each election
	Version  int32   // one higher with each change of any of these
}

// NoLeader stands for the leader of a partition that has none.
const NoLeader = -1

// Addr returns its host:port.
func (n Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))) }

// PartitionKey names a partition. The id, not the name, so that nobody waits on
// a topic's namesake.
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

// Lives reports whether a broker lives.
func (i *Image) Lives(id int32) bool {
	_, ok := i.Node(id)
	return ok
}

// All lists the topics by name.
func (i *Image) All() []*Topic {
	return slices.SortedFunc(maps.Values(i.ByName), func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// Assignment finds a partition's, if it exists.
func (i *Image) Assignment(key PartitionKey) (*Topic, *Assignment) {
	t := i.ByID[key.Topic]
	if t == nil || key.Index < 0 || int(key.Index) >= len(t.Partitions) {
		return nil, nil
	}
	return t, &t.Partitions[key.Index]
}

// The following change an image that is not published yet.

// next is a copy to change.
func (i *Image) next() *Image {
	return &Image{
		Version:    i.Version + 1,
		Nodes:      slices.Clone(i.Nodes),
		ByName:     maps.Clone(i.ByName),
		ByID:       maps.Clone(i.ByID),
		partitions: i.partitions,
		own:        map[TopicID]bool{},
	}
}

// takeChanges returns what was reassigned, and forgets it.
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

// reassign puts another assignment in the place of a partition's. The topic and
// its list are copied, once: images before this one have them, too.
func (i *Image) reassign(key PartitionKey, a Assignment) {
	t := i.ByID[key.Topic]
	if !i.own[key.Topic] {
		changed := *t
		changed.Partitions = slices.Clone(t.Partitions)
		t = &changed
		i.ByName[t.Name], i.ByID[t.ID] = t, t
		i.own[key.Topic] = true
	}
	before := t.Partitions[key.Index]
	a.Version = before.Version + 1
	t.Partitions[key.Index] = a
	i.changes = append(i.changes, change{t.Name, key.Index, before, a})
}

// Without returns ids but one.
func Without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}

// NodeAt is a broker's entry in the metadata.
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
