package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// contents is a shard's data on disk.
type contents struct {
	meta       meta
	timers     map[string]*timer
	successors map[string]*timer
	leases     map[string]*lease
	bodies     map[uint64]int
	lanes      [lanes][][]byte // positions, in order
	dead       [][]byte
	plans      map[string]*plan
}

// verify reads the whole folder and checks the invariants of doc.go, and that memory agrees. It
// checks D1. All calls must have returned.
func verify(t testing.TB, s *Store) {
	t.Helper()
	for _, sh := range s.shards {
		require.NoError(t, s.lock(t.Context(), sh))
		defer sh.unlock()
	}
	all := readAll(t, s)
	for i, sh := range s.shards {
		if all[i] == nil {
			all[i] = &contents{}
		}
		require.NoError(t, errors.Join(all[i].check(i, len(s.shards))...), "shard %d", i)
		require.NoError(t, errors.Join(all[i].compare(sh)...), "the memory of shard %d", i)
	}
}

// readAll decodes all keys.
func readAll(t testing.TB, s *Store) map[int]*contents {
	t.Helper()
	it, err := s.db.NewIter(nil)
	require.NoError(t, err)
	defer it.Close()
	require.True(t, it.First())
	require.Equal(t, []byte{keyConfig}, it.Key())
	all := map[int]*contents{}
	for it.Next() {
		k, v := it.Key(), it.Value()
		require.Equal(t, keyShard, k[0])
		n := int(k[1])<<8 | int(k[2])
		c := all[n]
		if c == nil {
			c = &contents{
				timers: map[string]*timer{}, successors: map[string]*timer{},
				leases: map[string]*lease{}, bodies: map[uint64]int{}, plans: map[string]*plan{},
			}
			all[n] = c
		}
		var err error
		switch key := string(k[4:]); k[3] {
		case kindMeta:
			require.LessOrEqual(t, len(k)+len(v), 200, "D10")
			c.meta, err = decodeMeta(v)
		case kindRecord:
			c.timers[key], err = decodeTimer(key, v)
		case kindSuccessor:
			c.successors[key], err = decodeTimer(key, v)
		case kindLease:
			c.leases[key], err = decodeLease(v)
		case kindPlan:
			c.plans[key], err = decodePlan(key, v)
		case kindBody:
			c.bodies[uint64(positionTime(k[4:]))] = len(v)
		case kindLane:
			c.lanes[k[4]] = append(c.lanes[k[4]], bytes.Clone(k[lanePrefixLen:]))
		case kindDead:
			c.dead = append(c.dead, bytes.Clone(k[deadPrefixLen:]))
		default:
			require.Fail(t, "a key of no kind", "%q", k)
		}
		require.NoError(t, err, "%q", k)
	}
	require.NoError(t, it.Error())
	return all
}

// check returns the errors on disk.
func (c *contents) check(shard, shards int) (wrong []error) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	states, owners := map[string]int{}, map[uint64]int{}
	for lane, positions := range c.lanes {
		if uint64(len(positions)) != c.meta.waiting[lane] {
			report("lane %d has %d timers, the record says %d", lane, len(positions), c.meta.waiting[lane])
		}
		for i, p := range positions {
			t := c.timers[positionKey(p)]
			states[positionKey(p)]++
			if t == nil || t.dead || t.due != positionTime(p) || t.lane() != lane {
				report("%q in lane %d is not of a timer that waits there", p, lane)
			}
			if i == 0 && positionTime(p) < c.meta.fronts[lane] {
				report("lane %d begins at %d, before its front %d", lane, positionTime(p), c.meta.fronts[lane])
			}
		}
	}
	for key, l := range c.leases {
		states[key]++
		if t := c.timers[key]; t == nil || t.dead || l.attempt <= t.attempts {
			report("the lease of %q has no timer", key)
		}
		if l.fence > c.meta.number {
			report("the fence of %q is above the last", key)
		}
	}
	for _, p := range c.dead {
		states[positionKey(p)]++
		if t := c.timers[positionKey(p)]; t == nil || !t.dead || t.died != positionTime(p) {
			report("%q is not of a dead letter", p)
		}
	}
	if uint64(len(c.dead)) != c.meta.dead {
		report("there are %d dead letters, the record says %d", len(c.dead), c.meta.dead)
	}
	owns := func(t *timer) {
		if store.ShardOf(t.key, shards) != shard {
			report("%q is in another's shard", t.key)
		}
		if (t.body.length > maxInline) != (t.body.number != 0) {
			report("the body of %q is in the wrong place", t.key)
		}
		if n := t.body.number; n != 0 {
			owners[n]++
			if c.bodies[n] != t.body.length || n > c.meta.number {
				report("the body of %q is not there", t.key)
			}
		}
	}
	for key, t := range c.timers {
		owns(t)
		if states[key] != 1 {
			report("%q is in %d states", key, states[key])
		}
	}
	for key, t := range c.successors {
		owns(t)
		if c.leases[key] == nil {
			report("the successor of %q succeeds nothing", key)
		}
	}
	for key, p := range c.plans {
		t := c.timers[key]
		if t == nil || t.dead || !store.IsPlan(key) {
			report("the plan %q has no timer", key)
		}
		if p.wake > store.WakeOnEnd || len(p.history.Last) != int(min(p.history.Ended(), store.MaxNotes)) {
			report("the plan %q has wake %d, %d ends and %d notes", key, p.wake, p.history.Ended(), len(p.history.Last))
		}
	}
	for key := range c.timers {
		if store.IsPlan(key) && c.plans[key] == nil {
			report("the timer %q is of no plan", key)
		}
	}
	for n := range c.bodies {
		if owners[n] != 1 {
			report("body %d is of %d timers", n, owners[n])
		}
	}
	return wrong
}

// compare returns the differences between memory and disk.
func (c *contents) compare(sh *shard) (wrong []error) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	var next store.Millis
	for i, positions := range c.lanes {
		ln := &sh.lanes[i]
		if ln.count != uint64(len(positions)) {
			report("lane %d has %d timers, memory says %d", i, len(positions), ln.count)
		}
		if len(positions) == 0 {
			continue
		}
		if d := bytes.Compare(ln.front, positions[0]); d > 0 || ln.exact && d != 0 {
			report("lane %d begins at %q, memory says %q (exact: %t)", i, positions[0], ln.front, ln.exact)
		}
		if due := positionTime(positions[0]); next == 0 || due < next {
			next = due
		}
	}
	if next != sh.next {
		report("the first is due at %d, memory says %d", next, sh.next)
	}
	if sh.dead != c.meta.dead || sh.dropped != c.meta.dropped || sh.number < c.meta.number {
		report("memory has %d dead, %d dropped, %d; disk %d, %d, %d",
			sh.dead, sh.dropped, sh.number, c.meta.dead, c.meta.dropped, c.meta.number)
	}
	if len(sh.leases.byKey) != len(c.leases) || len(sh.leases.byEnd)+len(sh.leases.plans) != len(c.leases) || sh.leases.waiting != len(c.successors) {
		report("memory has %d leases and %d successors, disk %d and %d",
			len(sh.leases.byKey), sh.leases.waiting, len(c.leases), len(c.successors))
	}
	if n := int(sh.lanes[store.PlanLane].count) + len(sh.leases.plans); n != len(c.plans) {
		report("memory has %d plans, disk %d", n, len(c.plans))
	}
	for _, l := range sh.leases.plans {
		if !store.IsPlan(l.t.key) {
			report("the lease of %q is not of a plan", l.t.key)
		}
	}
	live := 0
	for _, claim := range sh.leases.byClaim {
		live += claim.live
	}
	if live != len(c.leases) {
		report("the claims have %d leases, there are %d", live, len(c.leases))
	}
	for key, l := range sh.leases.byKey {
		d := c.leases[key]
		if d == nil || d.fence != l.fence || d.token != l.token || d.attempt != l.attempt || d.cancelled != l.cancelled {
			report("the lease of %q differs", key)
		}
		if (l.successor != nil) != (c.successors[key] != nil) {
			report("the successor of %q differs", key)
		}
	}
	return wrong
}
