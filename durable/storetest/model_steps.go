package storetest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// step decodes a call and makes it.
func (m *model) step() {
	m.Helper()
	kind := m.next()
	n := int(kind>>4) % len(m.keys)
	switch kind % 16 {
	case 0, 1, 2:
		m.schedule(n)
	case 3, 12:
		m.swap(n)
	case 4:
		if kind>>5%2 == 0 {
			m.cancel(n)
		} else {
			m.reschedule(n)
		}
	case 5, 6, 7, 8:
		m.claim(n)
	case 9, 10:
		m.end(n)
	case 11:
		m.extend(n)
	case 13:
		m.requeueOrPurge(n)
	case 14:
		m.pass()
	case 15:
		switch kind >> 5 % 4 {
		case 0:
			m.restart()
		case 1:
			m.cancel(n)
		default:
			m.pass()
		}
	}
}

// key decodes a key of a shard, not of a plan.
func (m *model) key(n int) string { return choose(m, m.keys[n]...) }

// when decodes a due time.
func (m *model) when() (at store.Millis, after time.Duration) {
	b := time.Duration(m.next())
	now := store.Millis(m.oracle.clock.UnixMilli())
	switch b % 8 {
	case 0, 1:
		return 1, 0
	case 2:
		return store.Millis(2 + b), 0
	case 3:
		return 0, b * time.Millisecond
	case 4:
		return 0, b * time.Second / 8
	case 5:
		return now + store.Millis(b)*10, 0
	case 6:
		return 0, b % 16
	}
	return 0, -b * time.Second
}

// body is a body of one byte. Engines may keep long ones elsewhere, as from a power of two on.
func body(b, size byte) []byte {
	return slices.Repeat([]byte{b}, []int{0, 1, 2, 3, 256, 257, 10, 3000}[size%8])
}

func (m *model) schedule(n int) {
	m.Helper()
	var entries []store.Entry
	for range 1 + m.next()%3 {
		e := store.Entry{Key: m.key(n), Topic: choose(m, topicOf(0), topicOf(1), topicOf(3))}
		e.At, e.After = m.when()
		flags := m.next()
		e.IfAbsent = flags%4 == 0
		e.Body = body(flags, flags>>4)
		e.ID = m.id()
		entries = append(entries, e)
	}
	m.both(fmt.Sprintf("schedule in %d: %+v", n, entries), func(p *peer) answer {
		receipts, h, err := p.store.Schedule(m.ctx, n, entries)
		m.fail(err)
		return answer{receipts, h, h.Now}
	}, n)
}

func (m *model) id() (id store.ID) {
	m.ids++
	binary.BigEndian.PutUint64(id[:], m.ids)
	return id
}

// swap changes plans.
func (m *model) swap(n int) {
	m.Helper()
	current := map[string]store.Record{}
	var swaps []store.PlanSwap
	for range 1 + m.next()%5/4 {
		flags := m.next()
		p := store.PlanSwap{Key: choose(m, m.plans[n]...), Wake: store.Wake(flags % 3)}
		now, known := current[p.Key]
		if !known {
			now, _ = m.oracle.store.Get(m.ctx, n, p.Key)
		}
		switch p.Expected = now.ID; flags >> 2 % 16 {
		case 0:
			p.Expected = store.ID{}
		case 1:
			p.Expected = m.id()
		}
		if flags>>2%16 != 2 || p.Expected == (store.ID{}) {
			p.ID = m.id()
		}
		if p.Expected == now.ID {
			now.ID = p.ID
			current[p.Key] = now
		}
		p.Body = body(flags, flags>>5)
		at, after := m.when()
		p.Due = cmp.Or(at, max(1, store.Millis(m.oracle.clock.Add(after).UnixMilli())))
		if seen := m.next(); now.History != nil {
			p.Seen = []uint64{0, now.History.Ended(), now.History.Ended(), now.History.Dead, now.History.Dead + 1, 1000}[seen%6]
		}
		first := m.next()
		for i := range int(first>>4) % (occurrences + 1) {
			e := store.Entry{Key: fmt.Sprint(p.Key, (int(first)+i)%occurrences), Topic: topicOf(0), ID: m.id()}
			e.At, e.After = m.when()
			e.Body = body(first, first>>6+2)
			p.Entries = append(p.Entries, e)
		}
		swaps = append(swaps, p)
	}
	var claim store.SwapClaim
	if flags := m.next(); flags%3 == 2 {
		claim = store.SwapClaim{Token: store.NewToken("worker"), Lease: m.lease(), Max: int(flags >> 2 % 4)}
		if flags>>4%4 == 0 { // it is sent twice
			m.swapAll(n, swaps, claim)
		}
	}
	m.swapAll(n, swaps, claim)
}

// swapAll makes swaps, and records the leases of each peer.
func (m *model) swapAll(n int, swaps []store.PlanSwap, claim store.SwapClaim) {
	m.Helper()
	m.both(fmt.Sprintf("swap in %d: %+v %+v", n, swaps, claim), func(p *peer) answer {
		results, leases, h, err := p.store.SwapPlans(m.ctx, n, swaps, claim)
		m.fail(err)
		for _, l := range leases {
			if !slices.Contains(p.held, l.Holder) {
				m.Greater(l.Fence, m.lastFence(p, n), "D5: a fence is not higher than the last")
				p.held = append(p.held, l.Holder)
			}
			m.Equal(claim.Token, l.Token)
		}
		return answer{[]any{results, p.comparableLeases(leases)}, h, h.Now}
	}, n)
}

// fill creates a plan whose history lists as many ends as it can.
func (m *model) fill() {
	m.Helper()
	n := len(m.plans) - 1
	p := store.PlanSwap{Key: m.plans[n][0], Due: 1}
	var keys []string
	for i := range occurrences {
		keys = append(keys, fmt.Sprint(p.Key, i))
	}
	for range store.MaxNotes/occurrences + 1 {
		p.Expected, p.ID, p.Entries = p.ID, m.id(), nil
		for _, key := range keys {
			p.Entries = append(p.Entries, store.Entry{Key: key, ID: m.id(), At: 1})
		}
		m.swapAll(n, []store.PlanSwap{p}, store.SwapClaim{})
		m.cancelAll(n, keys)
	}
}

func (m *model) cancel(n int) {
	m.Helper()
	m.cancelAll(n, []string{m.key(n), m.key(n)}[:1+m.next()%2])
}

func (m *model) cancelAll(n int, keys []string) {
	m.Helper()
	m.both(fmt.Sprint("cancel ", keys), func(p *peer) answer {
		results, err := p.store.Cancel(m.ctx, n, keys)
		m.fail(err)
		return answer{Results: results, present: m.lastEnd(p, n, keys)}
	}, n)
}

// lastEnd returns when the last of the occurrences of some plans has ended; 0 if none has. Nothing
// else shows the time of a cancel.
func (m *model) lastEnd(p *peer, n int, keys []string) (last store.Millis) {
	m.Helper()
	for _, key := range keys {
		r, err := p.store.Get(m.ctx, n, cmp.Or(store.PlanOf(key), key))
		if err != nil || r.History == nil || len(r.History.Last) == 0 {
			continue
		}
		last = max(last, r.History.Last[len(r.History.Last)-1].Ended)
	}
	return last
}

func (m *model) reschedule(n int) {
	m.Helper()
	var moves []store.Move
	for range 1 + m.next()%2 {
		move := store.Move{Key: m.key(n)}
		move.At, move.After = m.when()
		moves = append(moves, move)
	}
	m.both(fmt.Sprintf("reschedule %+v", moves), func(p *peer) answer {
		results, h, err := p.store.Reschedule(m.ctx, n, moves)
		m.fail(err)
		return answer{results, h, h.Now}
	}, n)
}

func (m *model) lease() time.Duration {
	return choose(m, 100*time.Millisecond, time.Second, 10*time.Second)
}

func (m *model) claim(n int) {
	m.Helper()
	flags := m.next()
	c := store.Claim{
		Worker: "w", Token: store.NewToken("w"), Max: 1 + int(flags%4), MaxBytes: store.MaxClaim,
		Lease: m.lease(), MaxAttempts: []int{1, 3, 5, 9}[flags>>2%4], FirstLane: int(flags>>4) % (store.Lanes + 1),
	}
	c.Plans = int(m.next() % 3)
	if flags>>6 == 0 {
		c.MaxBytes = choose(m, 1, 2, 3, 5, 300, 3200)
	}
	c.MaxAttempts = m.attempts(c.MaxAttempts)
	m.avoidExactAge()
	before := len(m.engine.held)
	m.both(fmt.Sprintf("claim in %d: %+v", n, c), func(p *peer) answer { return m.claimOf(p, n, c) }, n)
	if flags>>6 == 1 && len(m.engine.held) > before {
		m.both("the same claim", func(p *peer) answer {
			claimed, h, err := p.store.Claim(m.ctx, n, c)
			m.fail(err)
			return answer{p.comparableLeases(claimed.Leases), h, h.Now}
		}, n)
	}
}

// claimOf claims, and records the leases of p.
func (m *model) claimOf(p *peer, n int, c store.Claim) answer {
	m.Helper()
	last := m.lastFence(p, n)
	claimed, h, err := p.store.Claim(m.ctx, n, c)
	m.fail(err)
	slices.SortFunc(claimed.Leases, byKey)
	for _, l := range claimed.Leases {
		m.Greater(l.Fence, last, "D5: a fence is not higher than the last")
		m.Equal(c.Token, l.Token)
		p.held = append(p.held, l.Holder)
	}
	claimed.Leases = p.comparableLeases(claimed.Leases)
	return answer{claimed, h, h.Now}
}

// lastFence returns the highest fence that p has received in a shard.
func (m *model) lastFence(p *peer, n int) (last uint64) {
	for _, h := range p.held {
		if m.shardOf(h.Key) == n {
			last = max(last, h.Fence)
		}
	}
	return last
}

// comparableLeases makes the leases of two peers comparable.
func (p *peer) comparableLeases(leases []store.Lease) []store.Lease {
	var list []store.Lease
	for _, l := range leases {
		l.Fence = p.leaseIndex(l.Key, l.Fence)
		if len(l.Body) == 0 {
			l.Body = nil
		}
		l.History = comparableHistory(l.History)
		list = append(list, l)
	}
	slices.SortFunc(list, byKey)
	return list
}

// attempts is a claim's MaxAttempts. It is so high that no claim dead-letters if MaxDead is set:
// the engine would choose which of the timers is the oldest.
func (m *model) attempts(n int) int {
	if m.limits.MaxDead > 0 {
		return 1000
	}
	return n
}

// avoidExactAge passes a millisecond if a dead letter is exactly as old as MaxDeadAge: the engine
// may keep it or not.
func (m *model) avoidExactAge() {
	m.Helper()
	if m.limits.MaxDeadAge == 0 {
		return
	}
	for n := range m.keys {
		dead, err := m.oracle.store.List(m.ctx, n, store.Query{State: store.Dead, Limit: store.MaxItems})
		m.NoError(err)
		for _, r := range dead.Records {
			if store.After(r.Died, m.limits.MaxDeadAge) == store.Millis(m.oracle.clock.UnixMilli()) {
				m.passFor(time.Millisecond)
				return
			}
		}
	}
}

// holder decodes the index in held of one of the last leases in a shard; -1 if there is none.
func (m *model) holder(n int) int {
	back := int(m.next() % 8)
	found := -1
	for i := len(m.engine.held) - 1; i >= 0 && back >= 0; i-- {
		if m.shardOf(m.engine.held[i].Key) == n {
			found = i
			back--
		}
	}
	return found
}

// tampering decodes a change of a holder, mostly none.
func (m *model) tampering() func(store.Holder) store.Holder {
	kind := m.next()
	return func(h store.Holder) store.Holder {
		switch kind % 16 {
		case 0:
			h.Token[kind>>4]++
		case 1:
			h.Fence++
		}
		return h
	}
}

func (m *model) end(n int) {
	m.Helper()
	count := 1 + int(m.next()%3)
	indexes := make([]int, count)
	tampers := make([]func(store.Holder) store.Holder, count)
	outcomes := make([]store.Outcome, count)
	deadLetter := false
	for i := range count {
		if indexes[i] = m.holder(n); indexes[i] < 0 {
			return
		}
		tampers[i] = m.tampering()
		flags := m.next()
		kind := append(outcomeKinds[:len(outcomeKinds):len(outcomeKinds)], store.DeadLetter, store.DeadLetter, store.Retry)[flags%8]
		if store.IsPlan(m.engine.held[indexes[i]].Key) && (kind == store.DeadLetter || kind == store.Done && flags>>5 > 0) {
			kind = store.Retry
		}
		outcomes[i] = store.Outcome{
			Kind: kind, Error: strings.Repeat("e", int(flags>>5)*20),
			Delay: choose(m, 0, 0, time.Millisecond, time.Second, -time.Second, 100*time.Millisecond+1),
		}
		deadLetter = deadLetter || kind == store.DeadLetter
	}
	m.avoidExactAge()
	trim := newClaim(1)
	trim.MaxAttempts = m.attempts(trim.MaxAttempts)
	m.both(fmt.Sprintf("end %v: %+v", indexes, outcomes), func(p *peer) answer {
		mine := slices.Clone(outcomes)
		for i := range mine {
			mine[i].Holder = tampers[i](p.held[indexes[i]])
		}
		results, h, err := p.store.End(m.ctx, n, mine)
		m.fail(err)
		if deadLetter && (m.limits.MaxDead > 0 || m.limits.MaxDeadAge > 0) {
			return answer{[]any{results, m.claimOf(p, n, trim).Results}, h, h.Now}
		}
		return answer{results, h, h.Now}
	}, n)
}

func (m *model) extend(n int) {
	m.Helper()
	index, tamper, lease := m.holder(n), m.tampering(), m.lease()
	if index < 0 {
		return
	}
	m.both(fmt.Sprint("extend ", index, lease), func(p *peer) answer {
		results, end, err := p.store.Extend(m.ctx, n, []store.Holder{tamper(p.held[index])}, lease)
		m.fail(err)
		return answer{[]any{results, end}, store.Horizon{}, end - store.MillisOf(lease)}
	}, n)
}

// requeueOrPurge requeues or purges.
func (m *model) requeueOrPurge(n int) {
	m.Helper()
	keys := []string{m.key(n), m.key(n)}
	if m.next()%4 == 0 {
		m.both(fmt.Sprint("purge ", keys), func(p *peer) answer {
			purged, err := p.store.Purge(m.ctx, n, keys)
			m.fail(err)
			return answer{Results: purged}
		}, n)
		return
	}
	m.both(fmt.Sprint("requeue ", keys), func(p *peer) answer {
		results, h, err := p.store.Requeue(m.ctx, n, keys)
		m.fail(err)
		return answer{results, h, h.Now}
	}, n)
}

// pass advances both clocks, if the engine's can be moved.
func (m *model) pass() {
	m.Helper()
	d := choose(m, time.Millisecond, 10*time.Millisecond, 99*time.Millisecond, 100*time.Millisecond, time.Second, 10*time.Second, time.Minute)
	if m.Advance != nil {
		m.passFor(d)
	}
}

func (m *model) passFor(d time.Duration) {
	m.Helper()
	m.advance(d)
	*m.oracle.clock = m.oracle.clock.Add(d)
	m.both(fmt.Sprint("horizons after ", d), func(p *peer) answer {
		hs, err := p.store.Horizons(m.ctx, []int{1})
		m.fail(err)
		return answer{hs, store.Horizon{}, hs[0].Now}
	}, 0, 1)
}

// restart reopens the engine. If that ends its leases, all are leased again at once, so that the
// exact time of their end does not matter.
func (m *model) restart() {
	m.Helper()
	if m.Reopen == nil || m.LeasesEnd && !m.Frozen {
		return
	}
	c := newClaim(store.MaxItems)
	c.Plans = store.MaxItems
	c.MaxAttempts = m.attempts(c.MaxAttempts)
	m.avoidExactAge()
	m.both("reopen", func(p *peer) answer {
		if p.clock == nil {
			m.reopen()
			p.store = m.Store
		}
		if !m.LeasesEnd {
			return answer{}
		}
		if p.clock != nil {
			p.store.(*oracle.Store).Restart()
		}
		return answer{Results: []any{m.claimOf(p, 0, c), m.claimOf(p, 1, c)}}
	})
}
