package purgatory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// oracle is a deliberately simple purgatory: a list of operations, scanned from end to end for
// everything.
type oracle struct {
	now    time.Duration // since the purgatory was made
	ops    []*modelOp
	bound  int
	closed bool
	ends   []end // in order
}

type end struct {
	op  int
	how Outcome
	at  time.Duration
}

// modelOp is an operation in the oracle.
type modelOp struct {
	id       int
	keys     []int
	expires  time.Duration // -1: never
	ready    bool
	yesAt    int // the first check that returns true; 0: when ready
	panicAt  int // the check that panics; 0: none
	badEnd   bool
	chain    int // the key that its Complete checks; -1: none
	canceled bool
	waits    bool
	how      Outcome
	checks   int
}

const modelTick = time.Millisecond

func (o *oracle) end(m *modelOp, how Outcome) {
	m.waits = false
	m.how = how
	o.ends = append(o.ends, end{m.id, how, o.now})
	if how == Completed && m.chain >= 0 {
		o.check(m.chain)
	}
}

// check is one check; it returns 0 if the operation goes on waiting.
func (m *modelOp) check() Outcome {
	m.checks++
	switch {
	case m.checks == m.panicAt:
		return Failed
	case m.ready || m.yesAt > 0 && m.checks >= m.yesAt:
		return Completed
	}
	return 0
}

func (o *oracle) watching(key int) (found []*modelOp) {
	for _, m := range o.ops {
		if m.waits && slices.Contains(m.keys, key) {
			found = append(found, m)
		}
	}
	return found
}

func (o *oracle) check(key int) (n int) {
	for _, m := range o.watching(key) {
		if !m.waits { // ended by a chain in between
			continue
		}
		if how := m.check(); how != 0 {
			o.end(m, how)
			if how == Completed {
				n++
			}
		}
	}
	return n
}

func (o *oracle) cancelKey(key int) (n int) {
	for _, m := range o.watching(key) {
		o.end(m, Cancelled)
		n++
	}
	return n
}

// watch returns the results of TryCompleteElseWatch: whether there is a handle, and an error.
func (o *oracle) watch(m *modelOp, timeout time.Duration) (handle bool, err error) {
	if o.closed {
		return false, ErrClosed
	}
	o.ops = append(o.ops, m)
	if how := m.check(); how != 0 {
		o.end(m, how)
		return false, nil
	}
	if o.delayed() >= o.bound {
		return false, ErrFull
	}
	m.waits = true
	if how := m.check(); how != 0 {
		o.end(m, how)
		return false, nil
	}
	m.expires = -1
	switch {
	case timeout <= 0:
		m.expires = o.now
	case timeout != NoTimeout:
		m.expires = (o.now + timeout + modelTick - 1) / modelTick * modelTick
	}
	if m.canceled {
		o.end(m, Cancelled)
		return false, nil
	}
	if m.expires == o.now {
		o.end(m, Expired)
	}
	return true, nil
}

func (o *oracle) advance(d time.Duration) {
	until := o.now + d
	for {
		var next *modelOp
		for _, m := range o.ops {
			if m.waits && m.expires >= 0 && m.expires <= until && (next == nil || m.expires < next.expires) {
				next = m
			}
		}
		if next == nil {
			break
		}
		o.now = next.expires
		o.end(next, Expired)
	}
	o.now = until
}

func (o *oracle) delayed() (n int) {
	for _, m := range o.ops {
		if m.waits {
			n++
		}
	}
	return n
}

// counts returns Len, Watched and Keys.
func (o *oracle) counts() (f [3]int) {
	keys := map[int]bool{}
	for _, m := range o.ops {
		if m.waits {
			mine := map[int]bool{}
			for _, k := range m.keys {
				mine[k], keys[k] = true, true
			}
			f[0]++
			f[1] += len(mine)
		}
	}
	f[2] = len(keys)
	return f
}

// subject is the same operation in the purgatory.
type subject struct {
	*testOp
	model  modelOp // a copy of its script, not of its progress
	handle Pending
	cancel context.CancelFunc
}

// script decodes bytes; when they are used up it returns zeros.
type script struct{ left []byte }

func (s *script) next(n int) int {
	if len(s.left) == 0 {
		return 0
	}
	b := s.left[0]
	s.left = s.left[1:]
	return int(b) % n
}

var modelTimeouts = []time.Duration{
	NoTimeout, 0, -1, 1, modelTick, 3*modelTick - 1, 10*modelTick + 1, 255 * modelTick,
	257 * modelTick, time.Second, 100 * time.Second, NoTimeout - 1,
}

const modelKeys = 6

// play runs a script against a purgatory and its oracle, inside a bubble, and compares their
// whole visible state after each step.
func play(t *testing.T, data []byte) {
	s := &script{data}
	o := &oracle{bound: 1 + s.next(20)}
	p := open[int](t, Options{Tick: modelTick, Workers: 1 + s.next(3), MaxPending: o.bound, OnPanic: func(Panic) {}})
	start := time.Now()
	var ends recorder[end]
	var subjects []*subject

	pick := func() (*subject, *modelOp) {
		if len(subjects) == 0 {
			return nil, nil
		}
		x := subjects[s.next(len(subjects))]
		for _, m := range o.ops {
			if m.id == x.model.id {
				return x, m
			}
		}
		return nil, nil
	}
	watch := func() {
		m := &modelOp{id: len(subjects), expires: -1, chain: -1}
		many := s.next(32) // now and then more keys than a record holds
		for range 1 + many%4 + many/30*17 {
			m.keys = append(m.keys, s.next(modelKeys))
		}
		timeout := modelTimeouts[s.next(len(modelTimeouts))]
		kind := s.next(256)
		switch kind % 8 {
		case 1, 2, 3:
			m.yesAt = kind%8 + kind/128
		case 4:
			m.panicAt = 1 + kind/64
		}
		m.badEnd = kind%16 == 5
		if kind%3 == 0 {
			m.chain = kind / 8 % modelKeys
		}
		m.canceled = kind%32 == 7
		x := &subject{testOp: newOp(t), model: *m}
		x.try = func(n int) bool {
			if n == x.model.panicAt {
				panic("as the script has it")
			}
			return x.ready.Load() || x.model.yesAt > 0 && n >= x.model.yesAt
		}
		x.end = func(how Outcome) {
			ends.record(end{x.model.id, how, time.Since(start)})
			if how == Completed && x.model.chain >= 0 {
				p.CheckAndComplete(x.model.chain)
			}
			if x.model.badEnd {
				panic("as the script has it")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		x.cancel = cancel
		if m.canceled {
			cancel()
		}
		subjects = append(subjects, x)
		h, err := p.TryCompleteElseWatch(ctx, x, timeout, m.keys...)
		handle, want := o.watch(m, timeout)
		require.Equal(t, want, err)
		require.Equal(t, handle, !h.IsZero())
		x.handle = h
	}
	closeAll := func() {
		for _, m := range o.ops {
			if m.waits {
				o.end(m, Closed)
			}
		}
		o.closed = true
		require.NoError(t, p.Shutdown(context.Background()))
	}

	for len(s.left) > 0 {
		inOrder := true
		step := s.next(64)
		switch step % 16 {
		case 0, 1, 2, 3, 4:
			watch()
		case 5:
			if x, m := pick(); x != nil {
				x.ready.Store(true)
				m.ready = true
			}
		case 6, 7:
			key := s.next(modelKeys)
			require.Equal(t, o.check(key), p.CheckAndComplete(key))
		case 8, 9:
			key := s.next(modelKeys)
			err := p.CheckAndCompleteLater(key)
			require.Equal(t, o.closed, errors.Is(err, ErrClosed))
			synctest.Wait()
			o.check(key)
		case 10:
			if x, m := pick(); x != nil {
				waits := m.waits
				if waits {
					o.end(m, Cancelled)
				}
				require.Equal(t, waits, x.handle.Cancel(nil))
			}
		case 11:
			if x, m := pick(); x != nil {
				waits := m.waits
				if waits {
					o.end(m, Completed)
				}
				require.Equal(t, waits, x.handle.ForceComplete())
			}
		case 12:
			key := s.next(modelKeys)
			require.Equal(t, o.cancelKey(key), p.CancelForKey(key, nil))
		case 13:
			if x, m := pick(); x != nil {
				if m.waits {
					o.end(m, Cancelled)
				}
				x.cancel()
			}
		case 14:
			d := modelTimeouts[1+s.next(len(modelTimeouts)-2)]
			inOrder = false // several workers run the operations of one tick
			time.Sleep(d)
			o.advance(max(d, 0))
		case 15:
			if step == 63 && s.next(8) == 0 {
				inOrder = false // the shards are in any order
				closeAll()
			}
		}
		synctest.Wait()
		compare(t, p, o, ends.take(), inOrder)
	}
	closeAll()
	compare(t, p, o, ends.take(), false)
	for _, x := range subjects {
		x.cancel()
	}
	synctest.Wait()
	count(t, p, o, subjects)
	requireEmpty(t, p)
}

// compare compares the effects of one step.
func compare(t *testing.T, p *Purgatory[int], o *oracle, ends []end, inOrder bool) {
	t.Helper()
	if !inOrder {
		less := func(a, b end) int { return a.op - b.op }
		slices.SortFunc(ends, less)
		slices.SortFunc(o.ends, less)
	}
	require.Equal(t, fmt.Sprint(o.ends), fmt.Sprint(ends))
	o.ends = nil
	require.Equal(t, o.counts(), [3]int{p.Len(), p.Watched(), p.KeyCount()})
	verify(t, p)
}

// count compares every operation, and the totals.
func count(t *testing.T, p *Purgatory[int], o *oracle, subjects []*subject) {
	t.Helper()
	var want [outcomes]uint64
	panics := 0
	for _, m := range o.ops {
		x := subjects[m.id]
		require.Equal(t, m.how, x.Outcome(), "operation %d", m.id)
		require.EqualValues(t, m.checks, x.checks.Load(), "checks of operation %d", m.id)
		want[m.how]++
		if m.how == Failed {
			panics++
		}
		if m.how != 0 && m.badEnd {
			panics++
		}
	}
	st := p.Stats()
	want[0] = 0 // refused operations
	require.Equal(t, want, [outcomes]uint64{0, st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed})
	require.EqualValues(t, panics, st.Panics)
}

// P1 to P12: random operations against the oracle.
func TestModel(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	for seed := range rounds {
		rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
		data := make([]byte, 20+seed%800)
		_, _ = rnd.Read(data)
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, data) })
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzPurgatory(f *testing.F) {
	f.Add([]byte{})
	for seed := range byte(20) {
		data := make([]byte, 300)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			return // too long, and a shorter one shows as much
		}
		synctest.Test(t, func(t *testing.T) { play(t, data) })
	})
}
