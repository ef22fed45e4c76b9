package meta

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/uptime"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// Controller makes the cluster's decisions: which brokers are live, which topics exist, and which
// brokers replicate and lead their partitions. In Kafka it is a quorum of its own; here it is an
// object in the process, which brokers call directly. A broker still learns of a decision only when
// it asks, so a paused broker acts on an old image and has to be fenced.
//
// A broker is live until a deadline that each heartbeat extends; see keyed.Table.
//
// Lock order: mu is a leaf, except for the wheel's own locks.
type Controller struct {
	cfg       Config
	sessions  *keyed.Table[int32, Incarnation]
	current   atomic.Pointer[Image]
	producers atomic.Int64 // the last id allocated

	uptime     uptime.Clock // measures how long brokers have been silent
	stop       context.CancelFunc
	background sync.WaitGroup

	mu      sync.Mutex
	live    map[int32]*session // guarded by mu
	last    Incarnation        // guarded by mu
	placed  int                // partitions placed so far; the next placement starts there; guarded by mu
	changed chan struct{}      // closed when current is replaced; guarded by mu
	recent  []Decision         // the latest ones, oldest first; guarded by mu
	closed  bool               // no more decisions; guarded by mu
}

// session is the session of a live broker. The controller's lock guards it.
type session struct {
	incarnation   Incarnation
	lastHeartbeat time.Duration // by the controller's uptime
}

// Incarnation distinguishes a broker from the one that had its id before a restart.
type Incarnation uint64

// NewController starts a controller. cfg must come from WithDefaults.
func NewController(cfg Config) (*Controller, error) {
	c := &Controller{cfg: cfg, live: map[int32]*session{}, changed: make(chan struct{})}
	c.current.Store(&Image{ByName: map[string]*Topic{}, ByID: map[TopicID]*Topic{}})
	var err error
	if c.sessions, err = keyed.New(c.sessionEnded, timingwheel.Options{Tick: cfg.Tick}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.background.Go(func() { c.uptime.Run(ctx, cfg.BrokerSession/16, nil) })
	return c, nil
}

// Shutdown ends the controller and its goroutines.
func (c *Controller) Shutdown(ctx context.Context) error {
	c.Close()
	c.stop()
	c.background.Wait()
	_, err := c.sessions.Shutdown(ctx, timingwheel.Discard)
	return err
}

// Image returns the latest image.
func (c *Controller) Image() *Image { return c.current.Load() }

// Newer waits for an image of a higher version than the given one.
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

// decide calls f with the lock held and with a copy of the image, which f may change. Unless f
// returns false, it publishes the copy and logs each change of a partition with the cause that f
// returned.
func (c *Controller) decide(f func(next *Image) (cause string, ok bool)) {
	c.mu.Lock()
	next := c.Image().next()
	cause, ok := f(next)
	changes := next.takeChanges()
	if ok {
		c.current.Store(next)
		close(c.changed)
		c.changed = make(chan struct{})
		c.recordLocked(changes, cause)
	}
	c.mu.Unlock()
	if ok {
		c.report(changes, cause)
	}
}

// Decision is a decision of the controller.
type Decision struct {
	At                  time.Time
	Cause               string
	Leaders, InSyncSets int // number of partitions that changed
}

const maxRecent = 100

func (c *Controller) recordLocked(changes []change, cause string) {
	d := Decision{At: time.Now(), Cause: cause}
	for _, x := range changes {
		if x.before.Leader != x.after.Leader {
			d.Leaders++
		}
		if !slices.Equal(x.before.ISR, x.after.ISR) {
			d.InSyncSets++
		}
	}
	if len(c.recent) == maxRecent {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, d)
}

// Recent returns the last 100 decisions, oldest first.
func (c *Controller) Recent() []Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.recent)
}

func (c *Controller) report(changes []change, cause string) {
	for _, x := range changes {
		partition := fmt.Sprintf("%s/%d", x.topic, x.index)
		if x.before.Leader != x.after.Leader {
			c.cfg.Logger.Info("broker: leader changed", "partition", partition, "leader", x.after.Leader, "was", x.before.Leader, "epoch", x.after.Epoch, "cause", cause)
		}
		if !slices.Equal(x.before.ISR, x.after.ISR) {
			c.cfg.Logger.Info("broker: in-sync replicas changed", "partition", partition, "in_sync", x.after.ISR, "were", x.before.ISR, "cause", cause)
		}
	}
}

// NextProducerID allocates a producer id that is new in this cluster.
func (c *Controller) NextProducerID() int64 { return c.producers.Add(1) }

// Register adds a broker. Partitions without a leader may get one.
func (c *Controller) Register(n Node) (i Incarnation, err error) {
	c.decide(func(next *Image) (string, bool) {
		if c.closed {
			err = timingwheel.ErrClosed
			return "", false
		}
		if _, ok := c.live[n.ID]; ok {
			c.removeBrokerLocked(next, n.ID) // it may not go on leading the partitions that it led before its restart
		}
		c.last++
		i = c.last
		c.live[n.ID] = &session{i, c.uptime.Now()}
		next.Nodes = append(next.Nodes, n)
		slices.SortFunc(next.Nodes, func(a, b Node) int { return int(a.ID - b.ID) })
		for _, t := range next.ByID {
			for i, a := range t.Partitions {
				if a.Leader == NoLeader {
					c.electLocked(next, PartitionKey{t.ID, int32(i)}, a)
				}
			}
		}
		err = c.sessions.Set(n.ID, i, c.cfg.BrokerSession)
		return fmt.Sprintf("broker %d has registered", n.ID), true
	})
	if err == nil {
		c.cfg.Logger.Info("broker: registered", "broker", n.ID, "addr", n.Addr())
	}
	return i, err
}

// Heartbeat renews a broker's session. It reports false if there is none: the broker was fenced and
// must register again.
func (c *Controller) Heartbeat(id int32, i Incarnation) bool {
	c.mu.Lock()
	s := c.live[id]
	live := s != nil && s.incarnation == i
	if live {
		s.lastHeartbeat = c.uptime.Now()
	}
	c.mu.Unlock()
	return live && c.sessions.Touch(id, c.cfg.BrokerSession) == nil
}

// sessionEnded is the expiry function of the sessions. If the controller itself did not run for
// some of the time, it extends the session by that time.
func (c *Controller) sessionEnded(id int32, i Incarnation) {
	c.mu.Lock()
	var silent time.Duration
	if s := c.live[id]; s != nil && s.incarnation == i {
		silent = c.uptime.Now() - s.lastHeartbeat
		if left := c.cfg.BrokerSession - silent; left > 0 && !c.closed {
			_ = c.sessions.Set(id, i, max(left, c.cfg.BrokerSession/16)) // fails only during a shutdown
			c.mu.Unlock()
			return
		}
	}
	c.mu.Unlock()
	c.Fence(id, i, fmt.Sprintf("broker %d was silent for %v", id, silent.Round(time.Millisecond)))
}

// Unregister fences a broker that is about to stop, so that other brokers take over its partitions
// first. The last broker is not fenced: it may answer its pending requests until it stops.
func (c *Controller) Unregister(id int32, i Incarnation) {
	if len(c.Image().Nodes) > 1 {
		c.Fence(id, i, fmt.Sprintf("broker %d leaves", id))
	}
}

// Close ends all decisions: the whole cluster is about to stop.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Fence removes a broker from the cluster.
func (c *Controller) Fence(id int32, i Incarnation, cause string) {
	fenced := false
	c.decide(func(next *Image) (string, bool) {
		if s := c.live[id]; c.closed || s == nil || s.incarnation != i {
			return "", false
		}
		c.removeBrokerLocked(next, id)
		fenced = true
		return cause, true
	})
	if fenced {
		c.cfg.Logger.Info("broker: fenced", "broker", id, "cause", cause)
	}
}

// removeBrokerLocked removes a broker from every in-sync set in which it is not the last member. A
// new leader must have every committed record, so a partition whose last in-sync replica leaves
// waits for it, without a leader.
func (c *Controller) removeBrokerLocked(next *Image, id int32) {
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

// electLocked elects the first live in-sync replica as the leader.
func (c *Controller) electLocked(next *Image, key PartitionKey, a Assignment) {
	was := a.Leader
	a.Leader = NoLeader
	for _, id := range a.Replicas {
		if _, live := c.live[id]; live && slices.Contains(a.ISR, id) {
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

// AlterISR is a leader's request to change the in-sync set of its partition. It is refused if the
// leader, or the assignment that it believes in, is no longer current.
func (c *Controller) AlterISR(leader int32, key PartitionKey, current Assignment, isr []int32) (err *kerr.Error) {
	c.decide(func(next *Image) (string, bool) {
		_, a := next.Assignment(key)
		if err = c.mayAlterLocked(leader, a, current, isr); err != nil {
			return "", false
		}
		changed := *a
		changed.ISR = isr
		if preferred := a.Replicas[0]; leader != preferred && slices.Contains(isr, preferred) {
			c.electLocked(next, key, changed) // it has caught up: the preferred leader leads again
		} else {
			next.reassign(key, changed)
		}
		return fmt.Sprintf("broker %d, which leads, has seen who lags and who has caught up", leader), true
	})
	return err
}

func (c *Controller) mayAlterLocked(leader int32, a *Assignment, current Assignment, isr []int32) *kerr.Error {
	switch {
	case a == nil:
		return kerr.UnknownTopicID
	case c.closed, a.Leader != leader, a.Epoch != current.Epoch:
		return kerr.FencedLeaderEpoch
	case a.Version != current.Version:
		return kerr.InvalidUpdateVersion
	}
	for _, id := range isr {
		if _, live := c.live[id]; !live || !slices.Contains(a.Replicas, id) {
			return kerr.IneligibleReplica
		}
	}
	return nil
}
