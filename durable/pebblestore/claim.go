package pebblestore

import (
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Claim leases what is due.
func (s *Store) Claim(ctx context.Context, shard int, claim store.Claim) (store.Claimed, store.Horizon, error) {
	if err := claim.Check(); err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	return call(ctx, s, shard, writes, func(c *change) (store.Claimed, error) {
		if own := c.sh.leases.claimed(claim.Token); len(own) > 0 {
			return c.again(own)
		}
		p := &plan{c: c, claim: claim}
		defer p.close()
		if err := p.make(); err != nil {
			return store.Claimed{}, err
		}
		if err := c.inTime(); err != nil {
			return store.Claimed{}, err
		}
		return p.carryOut(), nil
	})
}

// again returns the leases of a claim that was sent again.
func (c *change) again(own []*lease) (answer store.Claimed, err error) {
	for _, l := range own {
		body, err := c.sh.readBody(l.t)
		if err != nil {
			return store.Claimed{}, err
		}
		answer.Leases = append(answer.Leases, l.answer(body))
	}
	return answer, nil
}

func (l *lease) answer(body []byte) store.Lease {
	return store.Lease{
		Holder: l.holder(), ID: l.t.id, Topic: l.t.topic, Body: body, Due: l.t.due,
		Attempt: l.attempt, LastError: l.t.lastError, End: l.end,
	}
}

// plan is what a claim is going to do. It is made in the first part of the change,
// and only reads.
type plan struct {
	c     *change
	claim store.Claim

	over    []*lease // run out, and not leased anew
	buried  int      // of these, how many become dead letters
	expired []*timer // dead letters that MaxDead and MaxDeadAge remove
	ranOut  []*lease // run out, and leased anew if there is room
	queues  [store.Lanes]queue
	picks   []pick
	size    int
	lost    [][]byte // keys that belong to no timer
}

// pick is a timer to lease: from the lanes, or one whose lease has run out.
type pick struct {
	t    *timer
	l    *lease
	body []byte
}

func (p *plan) make() error {
	p.sortRanOut()
	if err := p.findExpired(); err != nil {
		return err
	}
	for i := range p.queues {
		if err := p.queues[i].open(p, i); err != nil {
			return err
		}
	}
	return p.choose()
}

// sortRanOut parts the leases that have run out in those that are leased anew and
// those that are not.
func (p *plan) sortRanOut() {
	for _, l := range p.c.sh.leases.ranOut(p.c.at.now, store.MaxItems) {
		switch {
		case l.over():
			p.over = append(p.over, l)
			if l.successor != nil {
				p.queues[l.successor.lane()].expect(l.successor, p.c.at.now)
			}
		case l.attempt >= p.claim.MaxAttempts:
			p.over = append(p.over, l)
			p.buried++
		default:
			p.ranOut = append(p.ranOut, l)
		}
	}
}

// choose takes one timer from each queue in turn: the leases that have run out come
// after the lanes, or, if the claim begins with them, before lane 0.
func (p *plan) choose() error {
	turn := 0
	if p.claim.FirstLane == store.Lanes {
		turn = store.Lanes
	}
	for empty := 0; len(p.picks) < p.claim.Max && empty <= store.Lanes; turn++ {
		var next pick
		if i := turn % (store.Lanes + 1); i < store.Lanes {
			t, err := p.queues[(p.claim.FirstLane+i)%store.Lanes].first(p)
			if err != nil {
				return err
			}
			next.t = t
		} else if len(p.ranOut) > 0 {
			next.l = p.ranOut[0]
			next.t = next.l.t
		}
		if next.t == nil {
			empty++
			continue
		}
		empty = 0
		if p.size += next.t.body.length; p.size > p.claim.MaxBytes && len(p.picks) > 0 {
			return nil
		}
		var err error
		if next.body, err = p.c.sh.readBody(next.t); err != nil {
			return err
		}
		if next.l != nil {
			p.ranOut = p.ranOut[1:]
		} else {
			p.queues[next.t.lane()].pop()
		}
		p.picks = append(p.picks, next)
	}
	return nil
}

// carryOut changes the shard as planned.
func (p *plan) carryOut() store.Claimed {
	c := p.c
	answer := store.Claimed{Buried: p.buried, Repaired: len(p.lost) + len(c.sh.orphans)}
	c.repair(append(p.lost, c.sh.orphans...))
	c.sh.orphans = nil
	for _, l := range p.over {
		if c.release(l) {
			l.t.attempts = l.attempt
			c.bury(l.t)
		}
	}
	for _, t := range p.expired {
		c.discard(kindRecord, t)
		c.exhume(t)
		c.sh.dropped++
	}
	end := c.at.after(p.claim.Lease)
	for _, k := range p.picks {
		fence := c.sh.take(c.at.micros)
		l := k.l
		if l != nil {
			l.attempt++
			c.sh.leases.renew(l, fence, p.claim.Token, end)
			c.eraseLease(l)
			c.writeLease(l)
		} else {
			l = &lease{t: k.t, fence: fence, token: p.claim.Token, attempt: k.t.attempts + 1, end: end}
			c.unwait(k.t)
			c.lease(l)
		}
		answer.Leases = append(answer.Leases, l.answer(k.body))
	}
	for i := range p.queues {
		p.queues[i].settle(c.sh, i)
	}
	return answer
}

// repair removes keys that belong to no timer. However they came there: a Delete
// removes them.
func (c *change) repair(keys [][]byte) {
	for _, key := range keys {
		_ = c.batch.Delete(key, nil)
		switch key[lanePlace-2] {
		case kindLane:
			c.sh.lanes[key[lanePlace-1]].remove(key[lanePlace:])
		case kindDead:
			c.sh.dead--
		}
	}
}

func (p *plan) close() {
	for i := range p.queues {
		if it := p.queues[i].it; it != nil {
			_ = it.Close()
		}
	}
}
