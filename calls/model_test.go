package calls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The model is a map for each group, and a clock. A byte string encodes a run of operations,
// for the random test and the fuzzer.

const (
	modelGroups = 3 // the first is the table's own
	modelIDs    = 4
	modelMax    = 6
)

// modelCall is a call in the model.
type modelCall struct {
	number   int           // in the order of all calls
	deadline time.Duration // never: none
	cancel   context.CancelFunc
}

// ending is the end of a call.
type ending struct {
	number int
	reply  string
	err    error
}

type model struct {
	t      *testing.T
	table  *Table[int, string]
	groups [modelGroups]*Group[int, string]
	start  time.Time

	waiting [modelGroups]map[int]*modelCall
	closed  [modelGroups]error
	want    []ending // since the last step
	got     chan ending
	calls   int
	counts  Stats
}

var (
	errModelSend = errors.New("model: send")
	errModelFail = errors.New("model: fail")
	errModelLost = errors.New("model: lost")
)

func runModel(t *testing.T, run []byte) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{t: t, start: time.Now(), got: make(chan ending, 1<<16)}
		var err error
		m.table, err = New[int, string](Options{MaxPending: modelMax})
		require.NoError(t, err)
		m.groups = [modelGroups]*Group[int, string]{m.table.ungrouped, m.table.Group(), m.table.Group()}
		for i := range m.waiting {
			m.waiting[i] = map[int]*modelCall{}
		}
		for len(run) >= 2 {
			m.step(run[0], run[1])
			run = run[2:]
			m.compare()
		}
		for i := range m.groups {
			m.endAll(i, ErrClosed)
			m.closed[i] = ErrClosed
		}
		require.NoError(t, m.table.Shutdown(context.Background()))
		m.compare()
	})
}

func (m *model) held() (n int) {
	for _, w := range m.waiting {
		n += len(w)
	}
	return n
}

func (m *model) step(action, target byte) {
	i, id := int(target)%modelGroups, int(target/modelGroups)%modelIDs
	g, c := m.groups[i], m.waiting[i][id]
	// Timeouts and steps of the clock are whole milliseconds, and a tick is half of one: a call
	// expires exactly on time.
	timeout := time.Duration(target/16+1) * time.Millisecond
	if target%8 == 7 {
		timeout = NoTimeout
	}
	switch action % 10 {
	case 0, 1, 2: // Go; now and then its send fails, or is replied to at once
		m.calls++
		number := m.calls
		send := func() error { return nil }
		var sent *ending
		switch action / 10 % 6 {
		case 0:
			send, sent = func() error { return errModelSend }, &ending{number, "", errModelSend}
		case 1:
			send, sent = func() error { g.Reply(id, "within"); return errModelSend }, &ending{number, "within", nil}
		}
		err := g.Go(id, timeout, send, func(r string, err error) { m.got <- ending{number, r, err} })
		if want := m.wantError(i, c); want != nil {
			require.ErrorIs(m.t, err, want)
			return
		}
		require.NoError(m.t, err)
		if sent != nil {
			m.want = append(m.want, *sent)
			m.count(sent.err)
			return
		}
		m.enter(i, id, number, timeout, nil)
	case 3, 4: // Do
		m.calls++
		number := m.calls
		ctx, cancel := context.WithCancel(context.Background())
		want := m.wantError(i, c)
		if want == nil {
			m.enter(i, id, number, timeout, cancel)
		} else {
			m.want = append(m.want, ending{number, "", want})
		}
		go func() {
			r, err := g.Do(ctx, id, timeout, func() error { return nil })
			cancel()
			m.got <- ending{number, r, err}
		}()
		synctest.Wait()
	case 5, 6:
		reply := fmt.Sprint(m.calls)
		require.Equal(m.t, c != nil, g.Reply(id, reply))
		m.ended(i, id, c, reply, nil)
	case 7:
		if target >= 128 {
			require.Equal(m.t, c != nil, g.Fail(id, errModelFail))
			m.ended(i, id, c, "", errModelFail)
		} else if c != nil {
			if c.cancel != nil { // a call of Do
				c.cancel()
				m.ended(i, id, c, "", context.Canceled)
			}
		}
	case 8:
		pass := time.Duration(target%20) * time.Millisecond
		time.Sleep(pass)
		synctest.Wait()
		now := time.Since(m.start)
		for i := range m.waiting {
			for id, c := range m.waiting[i] {
				if c.deadline <= now {
					m.ended(i, id, c, "", ErrExpired)
				}
			}
		}
	case 9:
		if action < 230 || i == 0 {
			return // connections are lost rarely
		}
		if m.closed[i] == nil {
			m.closed[i] = errModelLost
			require.Equal(m.t, len(m.waiting[i]), g.CloseWithError(errModelLost))
			m.endAll(i, errModelLost)
		} else {
			require.Zero(m.t, g.CloseWithError(io.EOF))
			m.groups[i], m.closed[i] = m.table.Group(), nil
		}
	}
}

// wantError returns the error that a call of a group gets at once.
func (m *model) wantError(i int, c *modelCall) error {
	switch {
	case m.closed[i] != nil:
		m.counts.RefusedClosed++
		return m.closed[i]
	case c != nil:
		m.counts.Duplicates++
		return ErrDuplicate
	case m.held() >= modelMax:
		m.counts.RefusedFull++
		return ErrFull
	}
	return nil
}

func (m *model) enter(i, id, number int, timeout time.Duration, cancel context.CancelFunc) {
	c := &modelCall{number: number, deadline: never, cancel: cancel}
	if timeout != NoTimeout {
		c.deadline = time.Since(m.start) + timeout
	}
	m.waiting[i][id] = c
}

func (m *model) ended(i, id int, c *modelCall, reply string, err error) {
	if c == nil {
		m.counts.Unmatched++
		return
	}
	delete(m.waiting[i], id)
	m.want = append(m.want, ending{c.number, reply, err})
	m.count(err)
}

func (m *model) endAll(i int, err error) {
	for id, c := range m.waiting[i] {
		m.ended(i, id, c, "", err)
	}
}

func (m *model) count(err error) {
	switch {
	case err == nil:
		m.counts.Completed++
	case errors.Is(err, ErrExpired):
		m.counts.Expired++
	case errors.Is(err, context.Canceled):
		m.counts.Cancelled++
	case errors.Is(err, ErrClosed):
		m.counts.Closed++
	default:
		m.counts.Failed++
	}
}

// compare compares the calls that have ended with the model.
func (m *model) compare() {
	synctest.Wait()
	var got []ending
	for len(m.got) > 0 {
		got = append(got, <-m.got)
	}
	byNumber := func(a, b ending) int { return a.number - b.number }
	slices.SortFunc(got, byNumber)
	slices.SortFunc(m.want, byNumber)
	require.Equal(m.t, m.want, got)
	m.want = nil
	st := m.table.Stats()
	require.Equal(m.t, m.held(), st.Pending)
	require.Equal(m.t, m.held(), int(m.table.limit.Held()))
	got8 := [...]uint64{st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed, st.Duplicates, st.RefusedFull, st.RefusedClosed, st.Unmatched}
	c := m.counts
	want8 := [...]uint64{c.Completed, c.Expired, c.Cancelled, c.Closed, c.Failed, c.Duplicates, c.RefusedFull, c.RefusedClosed, c.Unmatched}
	require.Equal(m.t, want8, got8)
	require.Equal(m.t, c.Expired, st.Late.Count)
	require.Zero(m.t, st.GoWheel.Ready)
	m.verify()
}

// verify checks the invariants of the parts.
func (m *model) verify() {
	want := 0
	for i, g := range m.groups {
		n := 0
		for j := range g.parts {
			p := &g.parts[j]
			p.mu.Lock()
			for id, c := range p.calls {
				require.Equal(m.t, id, c.id)
				require.Same(m.t, p, c.part)
				require.Same(m.t, p, g.part(id))
				if c.deadline != never {
					want++
				}
			}
			n += len(p.calls)
			p.mu.Unlock()
		}
		require.Len(m.t, m.waiting[i], n)
	}
	require.Equal(m.t, want, timers(m.table), "a timer for each call that may expire, and no other")
}

func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 15))
		run := make([]byte, 400)
		for i := range run {
			run[i] = byte(rng.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runModel(t, run) }) {
			return
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{10, 3, 5, 3, 13, 3, 7, 3, 22, 5, 8, 19})
	f.Fuzz(func(t *testing.T, run []byte) { runModel(t, run[:min(len(run), 1000)]) })
}
