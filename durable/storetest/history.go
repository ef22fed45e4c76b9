package storetest

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/sequential"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/internal/linear"
)

// The calls on one key, by any goroutine at any time, are linearizable (Herlihy and Wing, 1990):
// however they overlap, there is an order in which a sequential timer would have given the same
// answers.

// keyCall is a call on one key. A claim that returned without the key although it had capacity is a
// call, too.
type keyCall struct {
	key   string
	entry *store.Entry
	end   *store.Outcome // which extends if its kind is 0
	op    keyOp
}

type keyOp uint8

const (
	opSchedule keyOp = iota
	opCancel
	opClaim
	opEnd
	opExtend
	opRequeue
	opPurge
	opGet
)

// keyAnswer is the answer to a call.
type keyAnswer struct {
	kind   uint8       // a ReceiptKind, CancelResult, EndResult, ExtendResult or RequeueResult; or how many were purged
	lease  store.Lease // a claim's; the zero one: the key was not leased
	record store.Record
}

// keyState is a sequential timer, and its holder. All timers are overdue or never due.
type keyState struct {
	sequential.Timer
	holder store.Holder // leased
	fence  uint64       // the last
}

func (s keyState) claimable() bool { return s.State == store.Waiting && s.Due < store.MaxMillis }

// then returns the results of step: whether the answer is right, and the timer after the call.
func (s keyState) then(right bool, after sequential.Timer) (bool, keyState) {
	if s.Timer = after; after.State != store.Leased {
		s.holder = store.Holder{}
	}
	return right, s
}

// step reports whether a sequential timer gives this answer, and returns its state afterwards.
func (s keyState) step(c keyCall, a keyAnswer) (bool, keyState) {
	switch c.op {
	case opSchedule:
		kind, after := s.Schedule(*c.entry)
		return s.then(a.kind == uint8(kind), after)
	case opCancel:
		result, after := s.Cancel()
		return s.then(a.kind == uint8(result), after)
	case opClaim:
		l := a.lease
		if l.Key == "" {
			return !s.claimable(), s
		}
		ok, after := s.claimable() && l.ID == s.ID && l.Fence > s.fence, s.Claim()
		s.holder, s.fence = l.Holder, l.Fence
		return s.then(ok && l.Attempt == after.Attempts, after)
	case opEnd:
		if s.State != store.Leased || s.holder != c.end.Holder {
			return a.kind == uint8(store.EndLost), s
		}
		result, after := s.End(c.end.Kind)
		return s.then(a.kind == uint8(result), after)
	case opExtend:
		want := store.Extended
		if s.State != store.Leased || s.holder != c.end.Holder {
			want = store.ExtendLost
		} else if s.Cancelled {
			want = store.ExtendCancelled
		}
		return a.kind == uint8(want), s
	case opRequeue:
		result, after := s.Requeue()
		return s.then(a.kind == uint8(result), after)
	case opPurge:
		purged, after := s.Purge()
		return s.then(int(a.kind) == purged, after)
	default:
		r := a.record
		same := r.State == s.State && r.ID == s.ID && r.Attempts == s.Attempts && r.Cancelled == s.Cancelled &&
			(r.SuccessorDue != 0) == (s.Successor != store.ID{}) && (s.State != store.Leased || r.Fence == s.holder.Fence)
		return same, s
	}
}

type operation = linear.Operation[keyCall, keyAnswer]

// client makes calls on a few keys of one shard, and records them.
type client struct {
	f     *fixture
	rnd   *rand.Rand
	base  time.Time
	shard int
	keys  []string
	calls []operation

	shared *struct {
		sync.Mutex
		held []store.Holder
	}
}

func (c *client) note(begun time.Duration, in keyCall, out keyAnswer) {
	c.calls = append(c.calls, operation{Call: in, Answer: out, Begin: int64(begun), End: int64(time.Since(c.base))})
}

func (c *client) fail(err error) {
	if err != nil {
		c.f.TB.Error(err)
	}
}

// step makes one call.
func (c *client) step() {
	s, ctx, n := c.f.Store, c.f.ctx, c.shard
	key := c.keys[c.rnd.IntN(len(c.keys))]
	begun := time.Since(c.base)
	switch c.rnd.IntN(12) {
	case 0, 1, 2:
		e := entry(key)
		e.IfAbsent = c.rnd.IntN(4) == 0
		if c.rnd.IntN(4) == 0 {
			e.At = store.MaxMillis
		}
		receipts, _, err := s.Schedule(ctx, n, []store.Entry{e})
		if c.fail(err); err == nil {
			c.note(begun, keyCall{key: key, op: opSchedule, entry: &e}, keyAnswer{kind: uint8(receipts[0].Kind)})
		}
	case 3:
		results, err := s.Cancel(ctx, n, []string{key})
		if c.fail(err); err == nil {
			c.note(begun, keyCall{key: key, op: opCancel}, keyAnswer{kind: uint8(results[0])})
		}
	case 4, 5:
		c.claim(begun)
	case 6, 7, 8:
		c.end(begun)
	case 9:
		results, _, err := s.Requeue(ctx, n, []string{key})
		if c.fail(err); err == nil {
			c.note(begun, keyCall{key: key, op: opRequeue}, keyAnswer{kind: uint8(results[0])})
		}
	case 10:
		purged, err := s.Purge(ctx, n, []string{key})
		if c.fail(err); err == nil {
			c.note(begun, keyCall{key: key, op: opPurge}, keyAnswer{kind: uint8(purged)})
		}
	default:
		r, err := s.Get(ctx, n, key)
		if err != nil {
			c.f.ErrorIs(err, store.ErrNotFound)
		}
		c.note(begun, keyCall{key: key, op: opGet}, keyAnswer{record: r})
	}
}

func (c *client) claim(begun time.Duration) {
	claim := newClaim(len(c.keys) + 1 - c.rnd.IntN(len(c.keys)+1))
	claim.Lease = store.MaxLease
	claimed, _, err := c.f.Store.Claim(c.f.ctx, c.shard, claim)
	if c.fail(err); err != nil {
		return
	}
	got := map[string]store.Lease{}
	c.shared.Lock()
	for _, l := range claimed.Leases {
		got[l.Key] = l
		c.shared.held = append(c.shared.held, l.Holder)
	}
	c.shared.Unlock()
	for _, key := range c.keys {
		if l, ok := got[key]; ok || len(got) < claim.Max {
			c.note(begun, keyCall{key: key, op: opClaim}, keyAnswer{lease: l})
		}
	}
}

// end ends or extends one of the last runs, of any client.
func (c *client) end(begun time.Duration) {
	c.shared.Lock()
	held := c.shared.held[max(0, len(c.shared.held)-4):]
	var h store.Holder
	if len(held) > 0 {
		h = held[c.rnd.IntN(len(held))]
	}
	c.shared.Unlock()
	if h.Key == "" {
		return
	}
	s, ctx, n := c.f.Store, c.f.ctx, c.shard
	if c.rnd.IntN(4) == 0 {
		results, _, err := s.Extend(ctx, n, []store.Holder{h}, store.MaxLease)
		if c.fail(err); err == nil {
			c.note(begun, keyCall{key: h.Key, op: opExtend, end: &store.Outcome{Holder: h}}, keyAnswer{kind: uint8(results[0])})
		}
		return
	}
	kinds := []store.OutcomeKind{store.Done, store.Retry, store.Release, store.DeadLetter}
	e := store.Outcome{Holder: h, Kind: kinds[c.rnd.IntN(len(kinds))]}
	results, _, err := s.End(ctx, n, []store.Outcome{e})
	if c.fail(err); err == nil {
		c.note(begun, keyCall{key: h.Key, op: opEnd, end: &e}, keyAnswer{kind: uint8(results[0])})
	}
}

// linearizable runs rounds of a few goroutines on a few new keys.
func linearizable(f *fixture) {
	const numClients, steps = 4, 25
	rounds := 30
	if long() {
		rounds = 1000
	}
	f.open(Options{Shards: 2})
	base := time.Now()
	byKey := map[string][]operation{}
	for round := range rounds {
		shard := round % 2
		keys := []string{}
		for i := 0; len(keys) < 3; i++ {
			if key := name(name("r", round), i); f.shardOf(key) == shard {
				keys = append(keys, key)
				f.keys[key] = true
			}
		}
		shared := &struct {
			sync.Mutex
			held []store.Holder
		}{}
		var wg sync.WaitGroup
		clients := make([]*client, numClients)
		for i := range clients {
			c := &client{f: f, base: base, shard: shard, keys: keys, shared: shared, rnd: rand.New(rand.NewPCG(uint64(round), uint64(i)))}
			clients[i] = c
			wg.Go(func() {
				for range steps {
					c.step()
				}
			})
		}
		wg.Wait()
		for _, c := range clients {
			for _, o := range c.calls {
				byKey[o.Call.key] = append(byKey[o.Call.key], o)
			}
		}
		f.held = append(f.held, shared.held...)
		f.verify()
		f.drain() // so that the next round's claims find their own keys only
	}
	for key, calls := range byKey {
		f.True(linear.Linearizable(keyState{}, keyState.step, calls), "no order of the calls on %q explains their answers", key)
	}
}
