package storetest

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/internal/linear"
)

var longTests = []test{
	{"D14 random calls, compared with the oracle", modelTest},
	{"D4 D5 D8 concurrent calls are linearizable", linearizable},
	{"D7 D12 hammered: each timer is acknowledged once", hammer},
}

func long() bool { return os.Getenv("LIMBO_LONG") == "1" }

// The calls on one key, by any goroutine at any time, are linearizable (Herlihy and
// Wing, 1990): however they overlap, there is an order in which a sequential timer
// would have given the same answers.

// keyCall is a call on one key. A claim that came back without the key although it
// had room is a call, too.
type keyCall struct {
	key   string
	entry *store.Entry
	end   *store.End // which extends if its kind is 0
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

// keyAnswer is what it returned.
type keyAnswer struct {
	kind   uint8       // a ReceiptKind, CancelResult, EndResult, ExtendResult or RequeueResult; or how many were purged
	lease  store.Lease // a claim's; the zero one: the key was not leased
	record store.Record
}

// keyState is a sequential timer. All of them are overdue or never due, and leases
// do not run out, so time is not part of it.
type keyState struct {
	home      store.State // 0: absent
	id, next  store.ID    // next is the successor's; zero: there is none
	nextDue   store.Millis
	due       store.Millis
	attempts  int
	cancelled bool
	holder    store.Holder
	fence     uint64 // the last
}

func (s keyState) claimable() bool { return s.home == store.Waiting && s.due < store.MaxMillis }

// finish ends the run.
func (s keyState) finish(kind store.EndKind) keyState {
	after := keyState{fence: s.fence}
	switch {
	case s.next != store.ID{}:
		after.home, after.id, after.due = store.Waiting, s.next, s.nextDue
	case s.cancelled || kind == store.Done:
	default:
		after.home, after.id, after.attempts, after.due = store.Waiting, s.id, s.attempts, s.due
		switch kind {
		case store.GiveBack:
			after.attempts--
		case store.Retry:
			after.due = 1 // by some time that has passed
		case store.Bury:
			after.home = store.Dead
		}
	}
	return after
}

func (s keyState) schedule(e store.Entry) (store.ReceiptKind, keyState) {
	if e.IfAbsent && s.home != 0 {
		return store.Exists, s
	}
	kind := map[store.State]store.ReceiptKind{0: store.Created, store.Waiting: store.Replaced, store.Dead: store.ReplacedDead}[s.home]
	if s.home == store.Leased {
		s.next, s.nextDue = e.ID, e.At
		return store.Succeeds, s
	}
	return kind, keyState{home: store.Waiting, id: e.ID, due: e.At, fence: s.fence}
}

func (s keyState) cancel() (store.CancelResult, keyState) {
	switch s.home {
	case store.Waiting:
		return store.Cancelled, keyState{fence: s.fence}
	case store.Leased:
		s.cancelled, s.next, s.nextDue = true, store.ID{}, 0
		return store.Running, s
	}
	return store.NotFound, s
}

// step reports whether a sequential timer answers so, and what it is then.
func (s keyState) step(c keyCall, a keyAnswer) (bool, keyState) {
	switch c.op {
	case opSchedule:
		kind, after := s.schedule(*c.entry)
		return a.kind == uint8(kind), after
	case opCancel:
		result, after := s.cancel()
		return a.kind == uint8(result), after
	case opClaim:
		l := a.lease
		if l.Key == "" {
			return !s.claimable(), s
		}
		ok := s.claimable() && l.ID == s.id && l.Attempt == s.attempts+1 && l.Fence > s.fence
		s.home, s.attempts, s.holder, s.fence = store.Leased, l.Attempt, l.Holder, l.Fence
		return ok, s
	case opEnd:
		if s.home != store.Leased || s.holder != c.end.Holder {
			return a.kind == uint8(store.EndLost), s
		}
		want := store.Ended
		if s.cancelled {
			want = store.EndCancelled
		} else if s.next != (store.ID{}) {
			want = store.EndReplaced
		}
		return a.kind == uint8(want), s.finish(c.end.Kind)
	case opExtend:
		want := store.Extended
		if s.home != store.Leased || s.holder != c.end.Holder {
			want = store.ExtendLost
		} else if s.cancelled {
			want = store.ExtendCancelled
		}
		return a.kind == uint8(want), s
	case opRequeue:
		switch s.home {
		case 0:
			return a.kind == uint8(store.RequeueAbsent), s
		case store.Dead:
			s.home, s.due, s.attempts = store.Waiting, 1, 0
			return a.kind == uint8(store.Requeued), s
		}
		return a.kind == uint8(store.RequeueLives), s
	case opPurge:
		if s.home == store.Dead {
			return a.kind == 1, keyState{fence: s.fence}
		}
		return a.kind == 0, s
	default:
		r := a.record
		same := r.State == s.home && r.ID == s.id && r.Attempts == s.attempts && r.Cancelled == s.cancelled &&
			(r.SuccessorDue != 0) == (s.next != store.ID{}) && (s.home != store.Leased || r.Fence == s.holder.Fence)
		return same, s
	}
}

type operation = linear.Operation[keyCall, keyAnswer]

// client makes calls on a few keys of one shard, and notes them.
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

// end ends or extends one of the last runs, whoever has claimed it.
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
			c.note(begun, keyCall{key: h.Key, op: opExtend, end: &store.End{Holder: h}}, keyAnswer{kind: uint8(results[0])})
		}
		return
	}
	kinds := []store.EndKind{store.Done, store.Retry, store.GiveBack, store.Bury}
	e := store.End{Holder: h, Kind: kinds[c.rnd.IntN(len(kinds))]}
	results, _, err := s.End(ctx, n, []store.End{e})
	if c.fail(err); err == nil {
		c.note(begun, keyCall{key: h.Key, op: opEnd, end: &e}, keyAnswer{kind: uint8(results[0])})
	}
}

// linearizable has rounds of a few goroutines on a few keys that are new.
func linearizable(f *fixture) {
	const clients, steps = 4, 25
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
		parties := make([]*client, clients)
		for i := range parties {
			c := &client{f: f, base: base, shard: shard, keys: keys, shared: shared, rnd: rand.New(rand.NewPCG(uint64(round), uint64(i)))}
			parties[i] = c
			wg.Go(func() {
				for range steps {
					c.step()
				}
			})
		}
		wg.Wait()
		for _, c := range parties {
			for _, o := range c.calls {
				byKey[o.Call.key] = append(byKey[o.Call.key], o)
			}
		}
		f.held = append(f.held, shared.held...)
		f.verify()
		f.drain() // so that the next round's claims find their own keys only
	}
	for key, calls := range byKey {
		f.True(linear.Explained(keyState{}, keyState.step, calls), "the calls on %q have no order that explains their answers", key)
	}
}
