package pebblestore

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// change is one call's change to a shard. It has two parts. The first part reads everything the
// call needs, and a read can fail. The second part changes the shard's memory and builds the batch,
// and no step of it can fail. So after an error nothing has changed. The second part does not begin
// once the call's ctx has ended, because the caller may have left: see inTime.
//
// The methods below are the steps of the second part. Each moves a timer into or out of a state
// (waiting, leased, dead), in memory and in the batch.
//
// Invariant: except for kindMeta and keyConfig, a key is set only when it does not exist, and
// removed only when it does. So SingleDelete can remove it, and the Set and the deletion vanish
// together when they meet: for most timers before they are written to a table.
type change struct {
	ctx    context.Context // of the call, with its deadline
	sh     *shard
	limits store.Limits
	at     moment
	batch  *pebble.Batch
	timers map[string]*timer // read by this call: waiting or dead; nil: there is none
	plans  map[string]*plan  // read by this call; nil: there is none
	noted  []*plan           // plans whose histories or wakes have changed, in order
	events []store.Event
	then   func() error // reads that follow once the shard is unlocked
	key    []byte       // a buffer
	value  []byte       // another
}

// moment is the time of a call.
type moment struct {
	now    store.Millis // rounded down: a timer due by now is due
	up     store.Millis // rounded up: delays count from it, so that no timer is early
	micros int64
}

func momentOf(t time.Time) moment {
	return moment{store.Millis(t.UnixMilli()), store.MillisAt(t), t.UnixMicro()}
}

// base returns the time from which a delay counts. A delay of 0 or less ends now.
func (m moment) base(delay time.Duration) store.Millis {
	if delay > 0 {
		return m.up
	}
	return m.now
}

func (m moment) after(delay time.Duration) store.Millis {
	return store.After(m.base(delay), delay)
}

// read fetches the timer of a key that is not leased. It belongs to the first part.
func (c *change) read(key string) (*timer, error) {
	if t, ok := c.timers[key]; ok {
		return t, nil
	}
	t, err := c.sh.readTimer(kindRecord, key)
	if err != nil {
		return nil, err
	}
	c.timers[key] = t
	return t, nil
}

// inTime ends the first part. It returns an error if ctx has ended, for example while the disk did
// not answer: the change must not be made at some later time.
func (c *change) inTime() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return nil
}

// readWaiting fetches the timer of a key, unless the timer is leased. It belongs to the first part.
func (c *change) readWaiting(key string) error {
	if c.sh.leases.byKey[key] != nil {
		return nil
	}
	_, err := c.read(key)
	return err
}

// each makes the same change to each of the items, which are timers of one shard and not plans.
func each[I, R any](ctx context.Context, s *Store, shard int, items []I, key func(I) string, do func(*change, I) R) ([]R, store.Horizon, error) {
	if err := noPlans(items, key); err != nil {
		return nil, store.Horizon{}, err
	}
	return changeAll(ctx, s, shard, items, key, func(c *change, item I) error { return c.readWaiting(key(item)) }, do)
}

// noPlans refuses the keys of plans: a change to a plan's timer must also change its kindPlan
// record.
func noPlans[I any](items []I, key func(I) string) error {
	for _, item := range items {
		if k := key(item); store.IsPlan(k) {
			return fmt.Errorf("durable: %.64q is the key of a plan, which only SwapPlans changes", k)
		}
	}
	return nil
}

// changeAll makes the same change to each of the items: read is its first part, do its second. The
// items are of one shard. The caller of changeAll has copied them, because the caller of the store
// may change its own once it has given up.
func changeAll[I, R any](
	ctx context.Context, s *Store, shard int, items []I, key func(I) string, read func(*change, I) error, do func(*change, I) R,
) ([]R, store.Horizon, error) {
	if err := s.checkKeys(shard, len(items), func(i int) string { return key(items[i]) }); err != nil {
		return nil, store.Horizon{}, err
	}
	return call(ctx, s, shard, writes, func(c *change) ([]R, error) {
		for _, item := range items {
			if err := read(c, item); err != nil {
				return nil, err
			}
		}
		if err := c.inTime(); err != nil {
			return nil, err
		}
		results := make([]R, len(items))
		for i, item := range items {
			results[i] = do(c, item)
		}
		c.writeNoted()
		return results, nil
	})
}

// identity returns an item that is a key.
func identity(key string) string { return key }

// set and remove write to the batch. They drop its errors, which only indexed batches return.
func (c *change) set(key, value []byte) { _ = c.batch.Set(key, value, nil) }
func (c *change) remove(key []byte)     { _ = c.batch.SingleDelete(key, nil) }

// create makes a timer, and writes its body if that is not inline.
func (c *change) create(e store.Entry, due store.Millis) *timer {
	t := &timer{key: e.Key, id: e.ID, topic: e.Topic, due: due}
	t.body.length = len(e.Body)
	if len(e.Body) <= maxInline {
		t.body.inline = e.Body
		return t
	}
	t.body.number = c.sh.take(c.at.micros)
	c.key = bodyKey(c.key[:0], c.sh.index, t.body.number)
	c.set(c.key, e.Body)
	return t
}

// write sets the record of a timer that has none.
func (c *change) write(kind byte, t *timer) {
	c.key = timerKey(c.key[:0], c.sh.index, kind, t.key)
	c.value = appendTimer(c.value[:0], t)
	c.set(c.key, c.value)
}

// rewrite replaces the record of a timer.
func (c *change) rewrite(t *timer) {
	c.erase(kindRecord, t)
	c.write(kindRecord, t)
}

// erase removes a record and keeps the body.
func (c *change) erase(kind byte, t *timer) {
	c.key = timerKey(c.key[:0], c.sh.index, kind, t.key)
	c.remove(c.key)
}

// discard removes a record and its body.
func (c *change) discard(kind byte, t *timer) {
	c.erase(kind, t)
	if t.body.number != 0 {
		c.key = bodyKey(c.key[:0], c.sh.index, t.body.number)
		c.remove(c.key)
	}
}

// wait adds a timer to its lane.
func (c *change) wait(t *timer) {
	lane := t.lane()
	c.key = laneKey(c.key[:0], c.sh.index, lane, t.due, t.key)
	c.set(c.key, nil)
	c.sh.lanes[lane].add(c.key[lanePrefixLen:])
}

// removeWaiting removes a timer from its lane.
func (c *change) removeWaiting(t *timer) {
	lane := t.lane()
	c.key = laneKey(c.key[:0], c.sh.index, lane, t.due, t.key)
	c.remove(c.key)
	c.sh.lanes[lane].remove(c.key[lanePrefixLen:])
}

// lease leases a timer that is in no state.
func (c *change) lease(l *lease) {
	c.sh.leases.add(l)
	c.writeLease(l)
}

// writeLease sets the lease of a timer that has none on disk.
func (c *change) writeLease(l *lease) {
	c.key = timerKey(c.key[:0], c.sh.index, kindLease, l.t.key)
	c.value = appendLease(c.value[:0], l)
	c.set(c.key, c.value)
}

func (c *change) eraseLease(l *lease) {
	c.key = timerKey(c.key[:0], c.sh.index, kindLease, l.t.key)
	c.remove(c.key)
}

// release ends a lease and reports whether the timer continues; such a timer is then in no state.
// Otherwise release removes the timer, and its successor begins to wait.
func (c *change) release(l *lease) bool {
	c.sh.leases.remove(l)
	c.eraseLease(l)
	if !l.final() {
		return true
	}
	c.discard(kindRecord, l.t)
	if s := l.successor; s != nil {
		c.erase(kindSuccessor, s)
		c.write(kindRecord, s)
		c.wait(s)
	}
	return false
}

// succeed replaces a lease's successor by t, or removes it if t is nil.
func (c *change) succeed(l *lease, t *timer) {
	if l.successor != nil {
		c.discard(kindSuccessor, l.successor)
	}
	c.sh.leases.succeed(l, t)
	if t != nil {
		c.write(kindSuccessor, t)
	}
}

// deadLetter makes a timer that is in no state a dead letter.
func (c *change) deadLetter(t *timer) {
	t.dead, t.died = true, c.at.now
	c.rewrite(t)
	c.key = deadKey(c.key[:0], c.sh.index, t.died, t.key)
	c.set(c.key, nil)
	c.sh.dead++
}

// removeDead removes a dead letter from the dead.
func (c *change) removeDead(t *timer) {
	c.key = deadKey(c.key[:0], c.sh.index, t.died, t.key)
	c.remove(c.key)
	c.sh.dead--
}
