package pebblestore

import (
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Claim leases due timers; see [store.Store].
func (s *Store) Claim(ctx context.Context, shard int, claim store.Claim) (store.Claimed, store.Horizon, error) {
	if err := claim.Check(); err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	return call(ctx, s, shard, writes, func(c *change) (store.Claimed, error) {
		if own := c.sh.leases.claimed(claim.Token); len(own) > 0 {
			return c.answerRepeated(own)
		}
		d := &draft{c: c, claim: claim}
		defer d.close()
		if err := d.prepare(); err != nil {
			return store.Claimed{}, err
		}
		if err := c.inTime(); err != nil {
			return store.Claimed{}, err
		}
		return d.execute(), nil
	})
}

// answerRepeated returns the leases of a claim that was sent again.
func (c *change) answerRepeated(own []*lease) (answer store.Claimed, err error) {
	for _, l := range own {
		body, err := c.sh.readBody(l.t)
		if err == nil && store.IsPlan(l.t.key) {
			_, err = c.readPlan(l.t.key)
		}
		if err != nil {
			return store.Claimed{}, err
		}
		answer.Leases = append(answer.Leases, c.answer(l, body))
	}
	return answer, nil
}

// answer returns a lease as Claim returns it. The plan of a plan's lease has been read before.
func (c *change) answer(l *lease, body []byte) store.Lease {
	answer := store.Lease{
		Holder: l.holder(), ID: l.t.id, Topic: l.t.topic, Body: body, Due: l.t.due,
		Attempt: l.attempt, LastError: l.t.lastError, End: l.end,
	}
	if store.IsPlan(l.t.key) {
		answer.History = c.plans[l.t.key].cloneHistory()
	}
	return answer
}

// draft is a claim as prepared by the first part of the change, which only reads.
type draft struct {
	c     *change
	claim store.Claim

	ended        []*lease // expired leases that this claim does not renew
	deadLettered int      // how many of ended become dead letters
	dropped      []*timer // dead letters that MaxDead and MaxDeadAge remove
	renewable    []*lease // expired leases that this claim renews if it has capacity
	queues       [lanes]queue
	woken        map[string]bool // the plans that wake when the runs in ended end
	picks        []pick          // the first plans of them are plans
	plans        int
	lost         [][]byte // keys that belong to no timer
}

// pick is a timer or a plan to lease: from its lane, or with an expired lease.
type pick struct {
	t    *timer
	l    *lease
	body []byte
}

func (d *draft) prepare() error {
	d.sortExpired()
	if err := d.readPlansOfEnded(); err != nil {
		return err
	}
	if err := d.findDropped(); err != nil {
		return err
	}
	if d.claim.Plans > 0 {
		if err := d.choosePlans(); err != nil {
			return err
		}
	}
	for i := range store.Lanes {
		if err := d.queues[i].open(d, i); err != nil {
			return err
		}
	}
	return d.choose()
}

// sortExpired divides the expired leases into those to renew and those to end.
func (d *draft) sortExpired() {
	for _, l := range d.c.sh.leases.byEnd.expired(d.c.at.now, store.MaxItems) {
		switch {
		case l.final():
			d.ended = append(d.ended, l)
			if l.successor != nil {
				d.queues[l.successor.lane()].addSuccessor(l.successor, d.c.at.now)
			}
		case l.attempt >= d.claim.MaxAttempts:
			d.ended = append(d.ended, l)
			d.deadLettered++
		default:
			d.renewable = append(d.renewable, l)
		}
	}
}

// readPlansOfEnded reads the plans of the occurrences that end with their leases. A plan that wakes
// is already due in this claim.
func (d *draft) readPlansOfEnded() error {
	for _, l := range d.ended {
		t, err := d.c.readForNote(l.t.key, l.outcome(store.DeadLetter))
		if err != nil {
			return err
		}
		if t == nil || d.woken[t.key] {
			continue
		}
		if d.woken == nil {
			d.woken = map[string]bool{}
		}
		d.woken[t.key] = true
		awake := *t // t keeps its position until note moves it
		awake.due = d.c.at.now
		d.queues[store.PlanLane].addSuccessor(&awake, d.c.at.now)
	}
	return nil
}

// choosePlans picks plans: first those with expired leases, then those that are due.
func (d *draft) choosePlans() error {
	q := &d.queues[store.PlanLane]
	if err := q.open(d, store.PlanLane); err != nil {
		return err
	}
	expired := d.c.sh.leases.plans.expired(d.c.at.now, d.claim.Plans)
	for size := 0; d.plans < d.claim.Plans; d.plans++ {
		var next pick
		if d.plans < len(expired) {
			next.l = expired[d.plans]
			next.t = next.l.t
		} else {
			t, err := q.first(d)
			if t == nil || err != nil {
				return err
			}
			next.t = t
		}
		if size += next.t.body.length; size > d.claim.MaxBytes && d.plans > 0 {
			return nil
		}
		var err error
		if next.body, err = d.c.sh.readBody(next.t); err != nil {
			return err
		}
		if _, err := d.c.readPlan(next.t.key); err != nil {
			return err
		}
		if next.l == nil {
			q.pop()
		}
		d.picks = append(d.picks, next)
	}
	return nil
}

// choose takes one timer from each queue in turn. The expired leases have their turn after the
// lanes, or before lane 0 if the claim begins with them.
func (d *draft) choose() error {
	turn := 0
	if d.claim.FirstLane == store.Lanes {
		turn = store.Lanes
	}
	size := 0
	for empty := 0; len(d.picks) < d.plans+d.claim.Max && empty <= store.Lanes; turn++ {
		var next pick
		if i := turn % (store.Lanes + 1); i < store.Lanes {
			t, err := d.queues[(d.claim.FirstLane+i)%store.Lanes].first(d)
			if err != nil {
				return err
			}
			next.t = t
		} else if len(d.renewable) > 0 {
			next.l = d.renewable[0]
			next.t = next.l.t
		}
		if next.t == nil {
			empty++
			continue
		}
		empty = 0
		if size += next.t.body.length; size > d.claim.MaxBytes && len(d.picks) > d.plans {
			return nil
		}
		var err error
		if next.body, err = d.c.sh.readBody(next.t); err != nil {
			return err
		}
		if next.l != nil {
			d.renewable = d.renewable[1:]
		} else {
			d.queues[next.t.lane()].pop()
		}
		d.picks = append(d.picks, next)
	}
	return nil
}

// execute changes the shard as prepared.
func (d *draft) execute() store.Claimed {
	c := d.c
	answer := store.Claimed{DeadLettered: d.deadLettered, Repaired: len(d.lost) + len(c.sh.orphans)}
	c.repair(append(d.lost, c.sh.orphans...))
	c.sh.orphans = nil
	for _, l := range d.ended {
		c.noteRun(l, l.outcome(store.DeadLetter), l.t.lastError)
		if c.release(l) {
			l.t.attempts = l.attempt
			c.deadLetter(l.t)
		}
	}
	for _, t := range d.dropped {
		c.discard(kindRecord, t)
		c.removeDead(t)
		c.sh.dropped++
	}
	end := c.at.after(d.claim.Lease)
	for _, k := range d.picks {
		fence := c.sh.take(c.at.micros)
		l := k.l
		if l != nil {
			l.attempt++
			c.sh.leases.renew(l, fence, d.claim.Token, end)
			c.eraseLease(l)
			c.writeLease(l)
		} else {
			l = &lease{t: k.t, fence: fence, token: d.claim.Token, attempt: k.t.attempts + 1, end: end}
			c.removeWaiting(k.t)
			c.lease(l)
		}
		l.plan = c.plans[k.t.key]
		answer.Leases = append(answer.Leases, c.answer(l, k.body))
	}
	for i := range d.queues {
		d.queues[i].advanceFront(d, i)
	}
	c.writeNoted()
	return answer
}

// repair removes keys that belong to no timer. It uses Delete, which removes a key however often it
// was set.
func (c *change) repair(keys [][]byte) {
	for _, key := range keys {
		_ = c.batch.Delete(key, nil)
		switch key[lanePrefixLen-2] {
		case kindLane:
			c.sh.lanes[key[lanePrefixLen-1]].remove(key[lanePrefixLen:])
		case kindDead:
			c.sh.dead--
		}
	}
}

func (d *draft) close() {
	for i := range d.queues {
		if it := d.queues[i].it; it != nil {
			_ = it.Close()
		}
	}
}
