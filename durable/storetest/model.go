package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/assert"
)

// Fuzz compares an engine with a store in memory, the oracle, on calls decoded from the fuzzer's
// input. The engine should be fast: in memory, and with a frozen clock.
func Fuzz(f *testing.F, e Engine) {
	for seed := range uint64(4) {
		f.Add(randomBytes(seed, 300))
	}
	f.Fuzz(func(t *testing.T, in []byte) { compare(newFixture(t, e), in[:min(len(in), 2000)]) })
}

// modelTest compares an engine with the oracle on random calls.
func modelTest(f *fixture) {
	for seed, last := uint64(0), false; !last; seed++ {
		one := newFixture(f.TB, f.engine)
		one.Log("seed", seed)
		compare(one, randomBytes(seed, 2000))
		switch {
		case long():
			last = seed == 499
		case one.Frozen:
			last = seed == 9
		default: // the calls assume a frozen clock
			last = seed == 2
		}
	}
}

func randomBytes(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 12))
	in := make([]byte, n)
	for i := range in {
		in[i] = byte(rnd.Uint32())
	}
	return in
}

// model makes the same calls on an engine and on an oracle. After each call it compares the answers,
// and the lists and counts of the call's shard. Each timer is read after every fullEvery calls only,
// because a difference stays, and these reads would be most of the calls; after a reopening and at
// the end, all of the store is read.
type model struct {
	*fixture
	in             []byte // not decoded yet
	limits         store.Limits
	keys           [][]string // by shard: of timers, some of which are occurrences of plans
	plans          [][]string // by shard: of plans
	engine, oracle *peer
	ids            uint64
	log            []string
}

const fullEvery = 8

// occurrences is the number of occurrences of a plan of the model.
const occurrences = 3

// peer is one of the two stores that are compared.
type peer struct {
	store store.Store
	held  []store.Holder // all leases, in the same order for both
	clock *time.Time     // the oracle's
}

// answer is the result of a step.
type answer struct {
	Results any
	Horizon store.Horizon
	present store.Millis // of the engine, if the step returns it; 0 if irrelevant
}

// compare decodes in, and makes its calls.
func compare(f *fixture, in []byte) {
	f.Helper()
	m := &model{fixture: f, in: in}
	config := m.next()
	m.limits.MaxPending = []int{0, 0, 4, 8}[config%4]
	// The engine chooses whether an End trims the dead letters, or only a Claim. With a frozen
	// clock, one of each can be made in the same millisecond.
	probe := f.engine.Open(f.TB, Options{Shards: 1})
	if probe.Frozen {
		m.limits.MaxDead = []int{0, 1}[config>>2%2]
		m.limits.MaxDeadAge = []time.Duration{0, 5 * time.Second}[config>>3%2]
	}
	f.NoError(probe.Store.Close())
	f.open(Options{Shards: 2, Limits: m.limits})
	m.keys, m.plans = make([][]string, 2), make([][]string, 2)
	for i := 0; len(m.keys[0]) < 3 || len(m.keys[1]) < 3; i++ {
		key := name("k", i)
		if n := f.shardOf(key); len(m.keys[n]) < 3 {
			m.keys[n] = append(m.keys[n], key)
			f.keys[key] = true
		}
	}
	for n, keys := range m.keys {
		for _, key := range keys[:2-n] {
			plan := store.PlanKey(key)
			m.plans[n] = append(m.plans[n], plan)
			f.keys[plan] = true
			for i := range occurrences {
				m.keys[n] = append(m.keys[n], fmt.Sprint(plan, i))
				f.keys[fmt.Sprint(plan, i)] = true
			}
		}
	}
	clock := f.readHorizon(0).Now.Time()
	m.engine = &peer{store: f.Store}
	m.oracle = &peer{clock: &clock}
	o, err := oracle.New(2, m.limits, m.oracle.now)
	f.NoError(err)
	m.oracle.store = o
	if config>>4%2 == 1 {
		m.fill()
	}
	for len(m.in) > 0 {
		m.step()
	}
	m.both("nothing", func(*peer) answer { return answer{} })
	f.verify()
	f.held = m.engine.held
	f.drain()
}

func (p *peer) now() time.Time { return *p.clock }

// clone copies p, whose store is an oracle, with the clock at now.
func (p *peer) clone(now time.Time) *peer {
	c := &peer{held: slices.Clip(p.held), clock: &now}
	c.store = p.store.(*oracle.Store).Clone(c.now)
	return c
}

// both makes a call on the engine, and then on the oracle at the engine's time. A running clock
// returns only milliseconds; a time rounded up can then be one more, so two times are tried. The
// call changes shards; without any, everything is read.
func (m *model) both(what string, call func(*peer) answer, shards ...int) {
	m.Helper()
	m.log = append(m.log, what)
	full := len(shards) == 0 || len(m.log)%fullEvery == 0
	if len(shards) == 0 {
		shards = []int{0, 1}
	}
	want := call(m.engine)
	wantState := m.state(m.engine, shards, full, nil)
	if full && m.Verify != nil {
		m.Verify(m.TB)
	}
	presents := []time.Time{*m.oracle.clock}
	if !m.Frozen && want.present != 0 {
		presents = []time.Time{want.present.Time(), want.present.Time().Add(time.Millisecond / 2)}
	}
	want.present = 0
	var got answer
	var gotState []shardState
	for _, now := range presents {
		o := m.oracle.clone(now)
		got = call(o)
		got.present = 0
		gotState = m.state(o, shards, full, wantState)
		if assert.ObjectsAreEqual(got, want) && assert.ObjectsAreEqual(gotState, wantState) {
			o.clock = &now
			m.oracle = o
			return
		}
	}
	m.Log(strings.Join(m.log, "\n"))
	m.Equal(got, want, "the answers of the oracle and the engine differ")
	m.Equal(gotState, wantState, "the states of the oracle and the engine differ")
	m.Fatal("not reached")
}

// shardState is the visible state of a shard.
type shardState struct {
	Records []store.Record    // fences are indexes in held; nil if they are not read
	Lists   [3][]store.Record // of waiting, leased and dead timers
	Plans   []store.Record    // fences are indexes in held
	Stats   store.Stats
}

// state reads shards of a peer. It reads those of an oracle at the times of like, the engine's
// states.
func (m *model) state(p *peer, shards []int, full bool, like []shardState) []shardState {
	m.Helper()
	states := make([]shardState, len(shards))
	for i, n := range shards {
		if p.clock != nil {
			now := *p.clock
			*p.clock = like[i].Stats.Now.Time()
			defer func() { *p.clock = now }()
		}
		states[i] = m.read(p, n, full)
	}
	return states
}

// read makes the calls that read a shard, concurrently if they must wait for an engine. A full read
// gets each timer, and lists the plans page by page.
func (m *model) read(p *peer, n int, full bool) (s shardState) {
	m.Helper()
	var keys []string
	limit := store.MaxItems
	if full {
		keys, limit = slices.Concat(m.keys[n], m.plans[n]), 1
	}
	records := make([]store.Record, len(keys))
	errs := make([]error, len(keys))
	var listErrs [3]error
	var plansErr, statsErr error
	var wg sync.WaitGroup
	begin := wg.Go
	if _, ok := p.store.(*oracle.Store); ok { // an oracle
		begin = func(f func()) { f() }
	}
	for i, key := range keys {
		begin(func() { records[i], errs[i] = p.store.Get(m.ctx, n, key) })
	}
	for i := range s.Lists {
		begin(func() {
			var page store.Page
			page, listErrs[i] = p.store.List(m.ctx, n, store.Query{State: store.Waiting + store.State(i), Limit: store.MaxItems})
			s.Lists[i] = page.Records
		})
	}
	begin(func() {
		after := ""
		for {
			page, err := p.store.Plans(m.ctx, n, after, limit)
			s.Plans = append(s.Plans, page...)
			if plansErr = err; !full || len(page) == 0 || page[0].Key <= after {
				return
			}
			after = page[0].Key
		}
	})
	s.Stats, statsErr = p.store.Stats(m.ctx, n)
	wg.Wait()
	m.NoError(errors.Join(listErrs[0], listErrs[1], listErrs[2], plansErr, statsErr))
	for _, list := range s.Lists {
		for i, r := range list {
			list[i] = p.comparable(r)
		}
	}
	for i, r := range records {
		if errs[i] != nil {
			m.ErrorIs(errs[i], store.ErrNotFound)
			continue
		}
		s.Records = append(s.Records, p.comparable(r))
	}
	for i, r := range s.Plans {
		s.Plans[i] = p.comparable(r)
	}
	return s
}

// comparable makes the records of two peers comparable.
func (p *peer) comparable(r store.Record) store.Record {
	if r.State == store.Leased {
		r.Fence = p.leaseIndex(r.Key, r.Fence)
	}
	if len(r.Body) == 0 {
		r.Body = nil
	}
	r.History = comparableHistory(r.History)
	return r
}

// comparableHistory replaces the times at which attempts have begun, which follow from their
// fences, by whether they have begun.
func comparableHistory(h *store.History) *store.History {
	if h == nil {
		return nil
	}
	copied := *h
	copied.Last = slices.Clone(h.Last)
	for i := range copied.Last {
		copied.Last[i].Begun = min(copied.Last[i].Begun, 1)
	}
	if len(copied.Last) == 0 {
		copied.Last = nil
	}
	return &copied
}

// leaseIndex returns the index of a lease in held, from 1; 0 if it is not there.
func (p *peer) leaseIndex(key string, fence uint64) uint64 {
	for i := len(p.held) - 1; i >= 0; i-- {
		if p.held[i].Key == key && p.held[i].Fence == fence {
			return uint64(i + 1)
		}
	}
	return 0
}

// next decodes a byte; after the end it returns 0.
func (m *model) next() byte {
	if len(m.in) == 0 {
		return 0
	}
	b := m.in[0]
	m.in = m.in[1:]
	return b
}

// choose decodes one of list.
func choose[T any](m *model, list ...T) T { return list[int(m.next())%len(list)] }

func (m *model) fail(err error) {
	if err != nil {
		m.Helper()
		m.NoError(err, strings.Join(m.log, "\n"))
	}
}
