package pebblestore

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// queue is a lane in a claim: what waits there on disk, and the successors that
// begin to wait there in this same claim.
type queue struct {
	it         *pebble.Iterator // nil: nothing is due
	head       *timer           // the timer that it stands on; nil: not read yet
	successors []*timer         // due, by place
	later      []*timer         // successors that are not due yet
}

// expect notes a successor that is going to wait in the lane.
func (q *queue) expect(t *timer, now store.Millis) {
	if t.due <= now {
		q.successors = append(q.successors, t)
	} else {
		q.later = append(q.later, t)
	}
}

func (q *queue) open(p *plan, lane int) error {
	slices.SortFunc(q.successors, byPlace)
	ln := &p.c.sh.lanes[lane]
	if ln.count == 0 || ln.bound() > p.c.at.now {
		return nil
	}
	var err error
	q.it, err = p.c.sh.laneIter(lane)
	return err
}

// first returns the first timer that is due, nil if there is none.
func (q *queue) first(p *plan) (*timer, error) {
	head, err := q.onDisk(p)
	if err != nil {
		return nil, err
	}
	if len(q.successors) > 0 && (head == nil || byPlace(q.successors[0], head) < 0) {
		return q.successors[0], nil
	}
	return head, nil
}

// onDisk returns the first timer on disk that is due, and notes what stands there
// without a timer.
func (q *queue) onDisk(p *plan) (*timer, error) {
	for q.it != nil && q.head == nil && q.it.Valid() {
		place := placeOf(q.it, lanePlace)
		due, key := placeTime(place), placeKey(place)
		if due > p.c.at.now {
			return nil, nil
		}
		if p.c.sh.leases.byKey[key] == nil {
			t, err := p.c.read(key)
			if err != nil {
				return nil, err
			}
			if t != nil && !t.dead && t.due == due && t.lane() == int(q.it.Key()[lanePlace-1]) {
				q.head = t
				break
			}
		}
		p.lost = append(p.lost, slices.Clone(q.it.Key()))
		q.it.Next()
	}
	if q.it != nil {
		if err := q.it.Error(); err != nil {
			return nil, fmt.Errorf("durable: reading shard %d: %w", p.c.sh.index, err)
		}
	}
	return q.head, nil
}

// pop takes away what first returned.
func (q *queue) pop() {
	if len(q.successors) > 0 && (q.head == nil || byPlace(q.successors[0], q.head) < 0) {
		q.successors = q.successors[1:]
		return
	}
	q.head = nil
	q.it.Next()
}

// settle sets where the lane begins now. The iterator knows, since the lane was
// taken from its front on; but for the successors, which it does not see.
func (q *queue) settle(sh *shard, lane int) {
	if q.it == nil || !q.it.Valid() {
		return
	}
	first := slices.Clone(placeOf(q.it, lanePlace))
	for _, t := range slices.Concat(q.successors, q.later) {
		if place := appendPlace(nil, t.due, t.key); bytes.Compare(place, first) < 0 {
			first = place
		}
	}
	sh.lanes[lane].begin(first)
}

func byPlace(a, b *timer) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.key, b.key))
}
