package pebblestore

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// change is one call's change to a shard. It has two parts: first what it needs is
// read, and a read can fail; then the shard's memory is changed and the batch built,
// and nothing there can fail. So after an error nothing was changed. The second part does not
// begin once the call's ctx has ended, whose caller may have left: see inTime.
//
// The methods below are the steps of the second part. Each moves a timer into or
// out of a home, in memory and in the batch.
//
// Invariant: a key but kindMeta's and keyConfig is set only when it is not there,
// and removed only when it is. So a SingleDelete removes it: it and the Set vanish
// together when they meet, in most lives before they are written to a table.
type change struct {
	ctx    context.Context // of the call, with its deadline
	sh     *shard
	limits store.Limits
	at     moment
	batch  *pebble.Batch
	timers map[string]*timer // that were read: waiting or dead; nil: there is none
	plans  map[string]*plan  // that were read; nil: there is none
	noted  []*plan           // whose histories or wakes have changed, in order
	events []store.Event
	then   func() error // what is left to read once the shard is unlocked
	key    []byte       // a buffer
	value  []byte       // another
}

// moment is the present of a call.
type moment struct {
	now    store.Millis // rounded down: what is due by now is due
	up     store.Millis // rounded up: delays count from it, so that nothing is early
	micros int64
}

func momentOf(t time.Time) moment {
	return moment{store.Millis(t.UnixMilli()), store.MillisAt(t), t.UnixMicro()}
}

// base returns the present from which a delay counts; one of 0 or less is over now.
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

// inTime ends the first part. It returns an error if ctx has ended meanwhile, as while the
// disk did not answer: the change must not be made at some later time.
func (c *change) inTime() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return nil
}

// readWaiting fetches the timer of a key, unless it is leased. It belongs to the first part.
func (c *change) readWaiting(key string) error {
	if c.sh.leases.byKey[key] != nil {
		return nil
	}
	_, err := c.read(key)
	return err
}

// each makes the same change to each of the items, which are timers of one shard, no plans.
func each[I, R any](ctx context.Context, s *Store, shard int, items []I, key func(I) string, do func(*change, I) R) ([]R, store.Horizon, error) {
	if err := noPlans(items, key); err != nil {
		return nil, store.Horizon{}, err
	}
	return changeAll(ctx, s, shard, items, key, func(c *change, item I) error { return c.readWaiting(key(item)) }, do)
}

// noPlans refuses the keys of plans: a change of a plan's timer must change the rest of it, too.
func noPlans[I any](items []I, key func(I) string) error {
	for _, item := range items {
		if k := key(item); store.IsPlan(k) {
			return fmt.Errorf("durable: %.64q is the key of a plan, which only SwapPlans changes", k)
		}
	}
	return nil
}

// changeAll makes the same change to each of the items: read is its first part, do its second.
// The items are of one shard, and the caller has copied them: the caller of the store may
// change its own once it has given up.
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

// itself is the key of an item that is one.
func itself(key string) string { return key }

// set and remove write to the batch. Their errors are those of indexed batches.
func (c *change) set(key, value []byte) { _ = c.batch.Set(key, value, nil) }
func (c *change) remove(key []byte)     { _ = c.batch.SingleDelete(key, nil) }

// create makes a timer's record, and its body.
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

// rewrite sets the record of a timer that has one.
func (c *change) rewrite(t *timer) {
	c.erase(kindRecord, t)
	c.write(kindRecord, t)
}

// erase removes a record, and leaves the body.
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

// wait puts a timer into its lane.
func (c *change) wait(t *timer) {
	lane := t.lane()
	c.key = laneKey(c.key[:0], c.sh.index, lane, t.due, t.key)
	c.set(c.key, nil)
	c.sh.lanes[lane].add(c.key[lanePlace:])
}

// unwait takes a timer out of its lane.
func (c *change) unwait(t *timer) {
	lane := t.lane()
	c.key = laneKey(c.key[:0], c.sh.index, lane, t.due, t.key)
	c.remove(c.key)
	c.sh.lanes[lane].remove(c.key[lanePlace:])
}

// lease leases a timer that is in no home.
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

// release ends a lease. If its timer does not go on, it is gone, and its successor
// waits; release reports whether the timer goes on, which then is in no home.
func (c *change) release(l *lease) bool {
	c.sh.leases.remove(l)
	c.eraseLease(l)
	if !l.over() {
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

// succeed gives a lease a successor, or takes it away, instead of the one it has.
func (c *change) succeed(l *lease, t *timer) {
	if l.successor != nil {
		c.discard(kindSuccessor, l.successor)
	}
	c.sh.leases.succeed(l, t)
	if t != nil {
		c.write(kindSuccessor, t)
	}
}

// bury makes a timer that is in no home a dead letter.
func (c *change) bury(t *timer) {
	t.dead, t.died = true, c.at.now
	c.rewrite(t)
	c.key = deadKey(c.key[:0], c.sh.index, t.died, t.key)
	c.set(c.key, nil)
	c.sh.dead++
}

// exhume takes a dead letter out of its home.
func (c *change) exhume(t *timer) {
	c.key = deadKey(c.key[:0], c.sh.index, t.died, t.key)
	c.remove(c.key)
	c.sh.dead--
}
