package pebblestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// lanes is the number of lanes of a shard: those for timers, and one for plans.
const lanes = store.Lanes + 1

// lane is the part of a lane that is kept in memory: how many timers wait in it, and where it
// begins.
//
// Claims leave tombstones at the beginning of the lane. An iterator would have to step over them,
// and over more with each claim, until a compaction removes them. So iterators start at front, and
// step only over keys removed from the middle, once.
//
// Invariant: no timer of the lane has a position before front. Invariant: if exact, a timer has the
// position front, or the lane is empty.
type lane struct {
	count uint64
	front []byte // a position; meaningless in an empty lane
	exact bool
}

func (ln *lane) add(pos []byte) {
	if ln.count == 0 || bytes.Compare(pos, ln.front) < 0 {
		ln.front = append(ln.front[:0], pos...)
		ln.exact = true
	}
	ln.count++
}

func (ln *lane) remove(pos []byte) {
	if ln.count > 0 {
		ln.count--
	}
	if ln.exact && bytes.Equal(pos, ln.front) {
		ln.exact = false
	}
}

// setFront moves the front to the first timer of the lane, which the caller has found.
func (ln *lane) setFront(pos []byte) {
	ln.front = append(ln.front[:0], pos...)
	ln.exact = true
}

// bound returns a time before which no timer of the lane is due; 0 if the lane is empty.
func (ln *lane) bound() store.Millis {
	if ln.count == 0 {
		return 0
	}
	return positionTime(ln.front)
}

// laneIter returns an iterator over a lane from its front on, positioned at the first timer if
// there is one.
func (sh *shard) laneIter(i int) (*pebble.Iterator, error) {
	p := lanePrefix(nil, sh.index, i)
	it, err := sh.db.NewIter(&pebble.IterOptions{
		LowerBound: append(p[:len(p):len(p)], sh.lanes[i].front...),
		UpperBound: after(p),
	})
	if err != nil {
		return nil, fmt.Errorf("durable: reading shard %d: %w", sh.index, err)
	}
	it.First()
	return it, nil
}

// positionOf returns the position in an iterator's key, after a prefix of skip bytes.
func positionOf(it *pebble.Iterator, skip int) []byte { return it.Key()[skip:] }

const (
	lanePrefixLen = 5 // of a key of kindLane: a position follows
	deadPrefixLen = 4 // of a key of kindDead: a position follows
)

// findFront moves the front of a lane to its first timer.
func (sh *shard) findFront(i int) error {
	ln := &sh.lanes[i]
	it, err := sh.laneIter(i)
	if err != nil {
		return err
	}
	if it.Valid() {
		ln.setFront(positionOf(it, lanePrefixLen))
	} else if it.Error() == nil {
		ln.count, ln.exact = 0, true // the disk decides
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("durable: reading shard %d: %w", sh.index, err)
	}
	return nil
}

// nextDue returns when the first waiting timer is due, 0 if no timer waits. It reads only as far as
// it must. If it cannot read, it returns an earlier time, so that a claim reports the error.
func (sh *shard) nextDue() store.Millis {
	for {
		first := -1
		for i := range sh.lanes {
			ln := &sh.lanes[i]
			if ln.count > 0 && (first < 0 || bytes.Compare(ln.front, sh.lanes[first].front) < 0) {
				first = i
			}
		}
		if first < 0 {
			return 0
		}
		if ln := &sh.lanes[first]; ln.exact || sh.findFront(first) != nil {
			return ln.bound()
		}
	}
}
