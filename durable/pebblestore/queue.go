package pebblestore

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// queue is a lane in a claim: the timers that wait there on disk, and the successors and woken
// plans that begin to wait there in this claim.
type queue struct {
	it         *pebble.Iterator // nil: nothing is due
	head       *timer           // the timer at the iterator; nil: not read yet
	successors []*timer         // due, by position
	later      []*timer         // not due yet
}

// addSuccessor adds a successor that is going to wait in the lane, or a plan that is going to wake.
func (q *queue) addSuccessor(t *timer, now store.Millis) {
	if t.due <= now {
		q.successors = append(q.successors, t)
	} else {
		q.later = append(q.later, t)
	}
}

func (q *queue) open(d *draft, lane int) error {
	slices.SortFunc(q.successors, byPosition)
	ln := &d.c.sh.lanes[lane]
	if ln.count == 0 || ln.bound() > d.c.at.now {
		return nil
	}
	var err error
	q.it, err = d.c.sh.laneIter(lane)
	return err
}

// first returns the first due timer, nil if there is none.
func (q *queue) first(d *draft) (*timer, error) {
	head, err := q.onDisk(d)
	if err != nil {
		return nil, err
	}
	if len(q.successors) > 0 && (head == nil || byPosition(q.successors[0], head) < 0) {
		return q.successors[0], nil
	}
	return head, nil
}

// onDisk returns the first due timer on disk, and collects the keys before it that have no timer in
// d.lost. It skips plans that wake in this claim: they are among the successors.
func (q *queue) onDisk(d *draft) (*timer, error) {
	for q.it != nil && q.head == nil && q.it.Valid() {
		pos := positionOf(q.it, lanePrefixLen)
		due, key := positionTime(pos), positionKey(pos)
		if due > d.c.at.now {
			return nil, nil
		}
		if d.woken[key] {
			q.it.Next()
			continue
		}
		if d.c.sh.leases.byKey[key] == nil {
			t, err := d.c.read(key)
			if err != nil {
				return nil, err
			}
			if t != nil && !t.dead && t.due == due && t.lane() == int(q.it.Key()[lanePrefixLen-1]) {
				q.head = t
				break
			}
		}
		d.lost = append(d.lost, slices.Clone(q.it.Key()))
		q.it.Next()
	}
	if q.it != nil {
		if err := q.it.Error(); err != nil {
			return nil, fmt.Errorf("durable: reading shard %d: %w", d.c.sh.index, err)
		}
	}
	return q.head, nil
}

// pop removes the timer that first returned.
func (q *queue) pop() {
	if len(q.successors) > 0 && (q.head == nil || byPosition(q.successors[0], q.head) < 0) {
		q.successors = q.successors[1:]
		return
	}
	q.head = nil
	q.it.Next()
}

// advanceFront sets the new front of the lane. The iterator is at it, because the claim took the
// lane from its front on; but the iterator does not see the successors.
func (q *queue) advanceFront(d *draft, lane int) {
	if q.it == nil || !q.it.Valid() {
		return
	}
	first := slices.Clone(positionOf(q.it, lanePrefixLen))
	if lane == store.PlanLane && d.woken[positionKey(first)] {
		return // the plan has moved; the front stays as it was
	}
	for _, t := range slices.Concat(q.successors, q.later) {
		if pos := appendPosition(nil, t.due, t.key); bytes.Compare(pos, first) < 0 {
			first = pos
		}
	}
	d.c.sh.lanes[lane].setFront(first)
}

func byPosition(a, b *timer) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.key, b.key))
}
