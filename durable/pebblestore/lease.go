package pebblestore

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// lease is a leased timer. All leases are in memory: there are as many as handlers that run, or
// were claimed to run, in this process or the one before. The disk has the token, fence and attempt
// of each, so that after a crash its timer is claimed again, and not twice at once. The end of a
// lease is only in memory, since on opening every lease has expired.
type lease struct {
	t         *timer
	successor *timer // or nil
	fence     uint64
	token     store.Token
	attempt   int
	cancelled bool
	end       store.Millis
	claim     *claim
	index     int   // in leases.byEnd or leases.plans
	plan      *plan // of a plan: as on disk, so that a swap need not read it; nil: unknown
}

func (l *lease) holder() store.Holder {
	return store.Holder{Key: l.t.key, Fence: l.fence, Token: l.token}
}

// final reports whether the timer ends with this run.
func (l *lease) final() bool { return l.cancelled || l.successor != nil }

const flagCancelled = 1

func appendLease(b []byte, l *lease) []byte {
	var flags byte
	if l.cancelled {
		flags |= flagCancelled
	}
	b = append(b, flags)
	b = append(b, l.token[:]...)
	b = binary.AppendUvarint(b, l.fence)
	return binary.AppendUvarint(b, uint64(l.attempt))
}

func decodeLease(v []byte) (*lease, error) {
	r := reader{left: v}
	l := &lease{}
	l.cancelled = r.byte()&flagCancelled != 0
	copy(l.token[:], r.take(len(l.token)))
	l.fence = r.uvarint()
	l.attempt = int(r.uvarint())
	if r.bad || len(r.left) > 0 {
		return nil, errRecord
	}
	return l, nil
}

// claim holds the leases that one claim gave. It is kept while one of them is live, so that the
// same claim sent again gets them again.
type claim struct {
	token  store.Token
	leases []*lease
	live   int
}

// leases are the leases of a shard.
type leases struct {
	byKey   map[string]*lease
	byEnd   byEnd // of timers
	plans   byEnd // of plans
	byClaim map[store.Token]*claim
	waiting int // successors
}

func newLeases() leases {
	return leases{byKey: map[string]*lease{}, byClaim: map[store.Token]*claim{}}
}

// ends returns the heap that holds a lease.
func (ls *leases) ends(l *lease) *byEnd {
	if store.IsPlan(l.t.key) {
		return &ls.plans
	}
	return &ls.byEnd
}

// add adds a lease, under its token and with its end.
func (ls *leases) add(l *lease) {
	ls.byKey[l.t.key] = l
	heap.Push(ls.ends(l), l)
	ls.join(l)
	if l.successor != nil {
		ls.waiting++
	}
}

func (ls *leases) remove(l *lease) {
	delete(ls.byKey, l.t.key)
	heap.Remove(ls.ends(l), l.index)
	ls.leave(l)
	if l.successor != nil {
		ls.waiting--
	}
}

// renew gives a lease to another claim.
func (ls *leases) renew(l *lease, fence uint64, token store.Token, end store.Millis) {
	ls.leave(l)
	l.fence, l.token = fence, token
	ls.join(l)
	ls.extend(l, end)
}

func (ls *leases) extend(l *lease, end store.Millis) {
	l.end = end
	heap.Fix(ls.ends(l), l.index)
}

// succeed sets a lease's successor, or removes it.
func (ls *leases) succeed(l *lease, t *timer) {
	if l.successor != nil {
		ls.waiting--
	}
	if l.successor = t; t != nil {
		ls.waiting++
	}
}

func (ls *leases) join(l *lease) {
	c := ls.byClaim[l.token]
	if c == nil {
		c = &claim{token: l.token}
		ls.byClaim[l.token] = c
	}
	l.claim = c
	c.leases = append(c.leases, l)
	c.live++
}

func (ls *leases) leave(l *lease) {
	c := l.claim
	l.claim = nil
	switch c.live--; {
	case c.live == 0:
		delete(ls.byClaim, c.token)
	case c.live < len(c.leases)/2:
		c.leases = slices.DeleteFunc(c.leases, func(l *lease) bool { return l.claim != c })
	}
}

// claimed returns the leases that a claim gave and still owns, by fence.
func (ls *leases) claimed(token store.Token) []*lease {
	c := ls.byClaim[token]
	if c == nil {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(c.leases), func(l *lease) bool { return l.claim != c })
	slices.SortFunc(own, func(a, b *lease) int { return cmp.Compare(a.fence, b.fence) })
	return own
}

// heldBy returns the lease that a holder names, or nil.
func (ls *leases) heldBy(h store.Holder) *lease {
	l := ls.byKey[h.Key]
	if l == nil || l.fence != h.Fence || l.token != h.Token {
		return nil
	}
	return l
}

// nextEnd returns the earliest end of a lease, 0 if there is none.
func (ls *leases) nextEnd() store.Millis {
	switch timer, plan := ls.byEnd.first(), ls.plans.first(); {
	case timer == 0 || plan != 0 && plan < timer:
		return plan
	default:
		return timer
	}
}

// byEnd is a heap: the earliest end first, then the smallest key.
type byEnd []*lease

// first returns the earliest end, 0 if there is none.
func (h byEnd) first() store.Millis {
	if len(h) == 0 {
		return 0
	}
	return h[0].end
}

// expired returns up to limit expired leases, by end and then key.
func (h *byEnd) expired(now store.Millis, limit int) []*lease {
	var out []*lease
	for len(*h) > 0 && h.first() <= now && len(out) < limit {
		out = append(out, heap.Pop(h).(*lease))
	}
	for _, l := range out {
		heap.Push(h, l)
	}
	return out
}

func (h byEnd) Len() int { return len(h) }

func (h byEnd) Less(i, j int) bool {
	if h[i].end != h[j].end {
		return h[i].end < h[j].end
	}
	return h[i].t.key < h[j].t.key
}

func (h byEnd) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byEnd) Push(x any) {
	l := x.(*lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *byEnd) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
