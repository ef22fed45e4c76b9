package timingwheel

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// oracle models the wheel as a slice of deadlines.
type oracle struct {
	pending []oracleTimer
	blocked int           // workers that wait at the gate
	open    time.Duration // since when the advancer and a worker have been available
}

type oracleTimer struct {
	v   int
	h   Timer
	due time.Duration // start of the tick that the wheel keeps as its deadline
	set time.Duration // when that was requested
}

// at returns when a due timer runs.
func (o *oracle) at(p oracleTimer) time.Duration { return max(p.due, p.set, o.open) }

func (o *oracle) find(h Timer) *oracleTimer {
	for i := range o.pending {
		if o.pending[i].h == h {
			return &o.pending[i]
		}
	}
	return nil
}

// take removes and returns the timers that are due at now.
func (o *oracle) take(now time.Duration) (due []oracleTimer) {
	for _, p := range o.pending {
		if p.due <= now {
			due = append(due, p)
		}
	}
	o.pending = slices.DeleteFunc(o.pending, func(p oracleTimer) bool { return p.due <= now })
	return due
}

// model runs operations decoded from bytes on a wheel and on the oracle, and compares all
// observable state after each.
type model struct {
	*fixture
	oracle
	gate    gate
	ops     []byte
	handles []Timer // live, stale, and at first none
	seen    map[Timer]bool
	next    int
	stats   Stats // the expected counters
	over    bool
}

// byte returns the next byte of the input, or 0 at its end.
func (m *model) byte() int {
	if len(m.ops) == 0 {
		return 0
	}
	b := m.ops[0]
	m.ops = m.ops[1:]
	return int(b)
}

// delay returns a delay that is likely to hit an edge: some ticks, or a power of the wheel's
// size in ticks, give or take a little.
func (m *model) delay() time.Duration {
	a, b := m.byte(), m.byte()
	d := time.Duration(a%24) * m.options.Tick
	switch b % 8 {
	case 0:
		d = m.options.Tick << (a % 36)
	case 1:
		d = time.Duration(m.options.WheelSize) * m.options.Tick * time.Duration(a%5)
	case 2:
		if a > 250 {
			d = math.MaxInt64 - time.Duration(a)
		}
	}
	return d + m.options.Tick*time.Duration(b/8%5-2)/2 + time.Duration(b/40%3-1)
}

// set records when the wheel has to run a timer that is set now.
func (m *model) set(p *oracleTimer, delay time.Duration) {
	now, tick := m.since(), m.options.Tick
	switch {
	case delay <= 0:
		p.due = now / tick * tick
	case delay > math.MaxInt64-now-tick: // saturates; no test gets there
		p.due = math.MaxInt64
	default:
		p.due = m.due(delay)
	}
	p.set = now
}

func (m *model) pick() Timer {
	if len(m.handles) == 0 {
		return Timer{}
	}
	// Mostly a recent one.
	return m.handles[len(m.handles)-1-min(m.byte()%32*(1+m.byte()/200*8), len(m.handles)-1)]
}

// crash does not return from the callback for some values.
func crash(v int) {
	switch v % 16 {
	case 7:
		panic(v)
	case 11:
		runtime.Goexit()
	}
}

func runModel(t *testing.T, input []byte) {
	m := &model{ops: input, gate: make(gate), seen: map[Timer]bool{}}
	o := Options{
		Tick:       []time.Duration{1, 3, time.Microsecond, time.Millisecond, time.Millisecond + 1}[m.byte()%5],
		WheelSize:  []int{2, 3, 8, 256}[m.byte()%4],
		Shards:     1 << (m.byte() % 3),
		Workers:    []int{1, 1, 2, 5}[m.byte()%4],
		MaxPending: []int{0, 0, 10}[m.byte()%3],
		OnPanic:    func(Panic) {},
	}
	m.fixture = start(t, o, m.gate.wait, crash)
	m.forceBatching(m.byte()%2 == 0)
	for len(m.ops) > 0 && !m.over {
		m.step()
	}
	if !m.over {
		m.shutdown()
	}
}

func (m *model) step() {
	t := m.t
	switch op := m.byte() % 32; op {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		m.add(m.delay(), op < 2)
	case 10, 11, 12, 13:
		h := m.pick()
		p := m.find(h)
		if op == 10 {
			v, ok := m.Remove(h)
			require.Equal(t, p != nil, ok, "T4, T6")
			require.True(t, p == nil && v == 0 || p != nil && v == p.v)
		} else {
			require.Equal(t, p != nil, m.Stop(h), "T4, T6")
		}
		if p != nil {
			m.pending = slices.DeleteFunc(m.pending, func(p oracleTimer) bool { return p.h == h })
			m.stats.Stopped++
		}
	case 14, 15, 16, 17, 18, 19:
		m.change(op)
	case 20, 21, 22, 23, 24:
		m.sleep(m.delay())
	case 25: // a stall: time passes without the advancer
		d := m.delay()
		m.stopAdvancer()
		m.sleep(d)
		m.open = m.since()
		m.startAdvancer()
	case 26, 27:
		if m.blocked < m.options.Workers && m.add2(-1, 0) {
			m.compare()
			m.blocked++
		}
	case 28, 29, 30:
		if m.blocked > 0 {
			if m.blocked == m.options.Workers {
				m.open = m.since()
			}
			m.blocked--
			m.gate <- struct{}{}
		}
	case 31:
		if m.byte() > 200 { // rarely: it ends the run
			m.shutdown()
			return
		}
	}
	m.compare()
}

// change gives a timer another deadline, in one of several ways.
func (m *model) change(op int) {
	t := m.t
	h, d := m.pick(), m.delay()
	at := time.Now().Add(d)
	p := m.find(h)
	if p != nil {
		v, ok := m.Value(h)
		require.True(t, ok && v == p.v)
		deadline, ok := m.Deadline(h)
		require.True(t, ok && deadline.Sub(m.created) == p.due, "T17: deadline %v, should be %v", deadline.Sub(m.created), p.due)
	}
	var ok bool
	switch op {
	case 14:
		ok = m.ResetAt(h, at)
	case 15:
		ok = m.Touch(h, d)
		if p != nil {
			later := *p
			if m.set(&later, d); d <= 0 || later.due <= p.due {
				p = nil // it stays as it is
			}
			require.True(t, ok, "T5")
			ok = p != nil
		}
	case 16, 17:
		m.next++
		if op == 16 {
			ok = m.Replace(h, m.next, d)
		} else {
			ok = m.ReplaceAt(h, m.next, at)
		}
		if p != nil {
			p.v = m.next
		}
	default:
		ok = m.Reset(h, d)
	}
	require.Equal(t, p != nil, ok, "T5, T6")
	if p != nil {
		m.set(p, d)
		return
	}
	if m.find(h) == nil {
		_, ok = m.Value(h)
		require.False(t, ok, "T6")
		_, ok = m.Deadline(h)
		require.False(t, ok, "T6, T17")
	}
}

// sleep stays well within the range of the bubble's clock.
func (m *model) sleep(d time.Duration) {
	time.Sleep(min(d, math.MaxInt64/4-m.since()))
}

func (m *model) add(d time.Duration, at bool) {
	m.next++
	if !at {
		m.add2(m.next, d)
		return
	}
	h, err := m.ScheduleAt(m.next, time.Now().Add(d))
	m.added(m.next, d, h, err)
}

func (m *model) add2(v int, d time.Duration) bool {
	h, err := m.Schedule(v, d)
	return m.added(v, d, h, err)
}

func (m *model) added(v int, d time.Duration, h Timer, err error) bool {
	if bound := m.options.MaxPending; bound > 0 && len(m.pending) >= bound {
		require.ErrorIs(m.t, err, ErrFull)
		m.stats.RefusedFull++
		return false
	}
	require.NoError(m.t, err)
	require.False(m.t, m.seen[h], "T6: a handle came twice")
	m.seen[h] = true
	m.handles = append(m.handles, h)
	p := oracleTimer{v: v, h: h}
	m.set(&p, d)
	m.pending = append(m.pending, p)
	m.stats.Scheduled++
	return true
}

// compare compares the firings with the expected ones, and all observable state.
func (m *model) compare() {
	t := m.t
	synctest.Wait()
	now := m.since()
	var want []oracleTimer
	if m.blocked < m.options.Workers {
		want = m.take(now)
	}
	ran := m.fired()
	expected := make([]firing, 0, len(want))
	dues := map[int]time.Duration{}
	for _, p := range want {
		expected = append(expected, firing{p.v, m.at(p)})
		dues[p.v] = p.due
		m.stats.Expired++
		if p.v > 0 && p.v%16 == 7 {
			m.stats.Panics++
		}
	}
	if m.options.Workers == 1 {
		inOrder := slices.IsSortedFunc(ran, func(a, b firing) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(dues[a.v], dues[b.v]))
		})
		require.True(t, inOrder, "T14: %v ran with deadlines %v", ran, dues)
	}
	byValue := func(a, b firing) int { return cmp.Compare(a.v, b.v) }
	slices.SortFunc(ran, byValue)
	slices.SortFunc(expected, byValue)
	require.True(t, slices.Equal(expected, ran), "T1, T2, T3: want %v, ran %v", expected, ran)

	verify(t, m.Wheel)
	oldest, ready := now, 0
	for _, p := range m.pending {
		if p.due <= now {
			oldest = min(oldest, p.due)
			ready++
		}
	}
	st := m.Stats()
	require.Equal(t, len(m.pending), m.Len())
	require.LessOrEqual(t, st.EmptyWakeups, st.Wakeups+m.earlierWakeups)
	require.LessOrEqual(t, st.Workers, m.options.Workers)
	got := Stats{
		Pending: st.Pending, Ready: st.Ready, Overdue: st.Overdue, Scheduled: st.Scheduled, Stopped: st.Stopped,
		Expired: st.Expired, Discarded: st.Discarded, Returned: st.Returned, Panics: st.Panics,
		RefusedFull: st.RefusedFull, RefusedClosed: st.RefusedClosed,
	}
	m.stats.Pending, m.stats.Ready, m.stats.Overdue = len(m.pending), ready, now-oldest
	require.Equal(t, m.stats, got)
}

// shutdown ends the run, at times with a context that ends first.
func (m *model) shutdown() {
	t := m.t
	m.over = true
	policy := policies[m.byte()%4]
	for _, p := range m.pending {
		if policy == Await && p.due > 1<<60 {
			policy = Return
		}
	}
	all := slices.Clone(m.pending)
	slices.SortStableFunc(all, func(a, b oracleTimer) int { return cmp.Compare(a.due, b.due) })
	var left []int
	if m.blocked > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(m.byte()))
		defer cancel()
		back, err := m.Shutdown(ctx, policy)
		left = m.valuesOf(back)
		require.True(t, errors.Is(err, context.DeadlineExceeded), err)
		close(m.gate)
	}
	again, err := m.Shutdown(context.Background(), policy)
	require.NoError(t, err)
	left = append(left, m.valuesOf(again)...)
	m.closed()
	for _, h := range m.handles {
		require.False(t, m.Stop(h) || m.Reset(h, 0), "T6")
	}
	ran := m.values()
	slices.Sort(ran)
	var values []int
	dues := map[int]time.Duration{}
	for _, p := range all {
		values = append(values, p.v)
		dues[p.v] = p.due
	}
	if policy == Return {
		require.True(t, slices.IsSortedFunc(left, func(a, b int) int { return cmp.Compare(dues[a], dues[b]) }), "in order of deadline")
	} else {
		require.Empty(t, left)
	}
	slices.Sort(values)
	slices.Sort(left)
	switch policy {
	case Discard:
		require.Empty(t, ran)
		require.Equal(t, m.stats.Discarded+uint64(len(all)), m.Stats().Discarded)
	case Return:
		require.Empty(t, ran)
		require.True(t, slices.Equal(values, left), "%v %v", values, left)
	default:
		require.True(t, slices.Equal(values, ran), "%v %v", values, ran)
	}
}

// T1 to T6, T11, T13, T14, T16: random operations behave like those on a slice of deadlines.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(times(200)) {
		r := rand.New(rand.NewPCG(seed, 0))
		input := make([]byte, r.IntN(800))
		for i := range input {
			input[i] = byte(r.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { runModel(t, input) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWheel(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		input := make([]byte, 300)
		for i := range input {
			input[i] = byte(r.Uint32())
		}
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		input = input[:min(len(input), 1000)]
		synctest.Test(t, func(t *testing.T) { runModel(t, input) })
	})
}
