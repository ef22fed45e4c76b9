package keyed

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// oracle models a table as a map from keys to deadlines in whole ticks, which is searched for
// the next one.
type oracle struct {
	tick   time.Duration
	limit  int // 0: none
	closed bool
	keys   map[uint16]oracleEntry
}

type oracleEntry struct {
	value int
	due   time.Duration // after the table was made; a whole tick, or at once
}

// deadline returns when a key that is set now with ttl must end.
func (o *oracle) deadline(now, ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return now
	}
	return (now + ttl + o.tick - 1) / o.tick * o.tick
}

// setError returns the error for a key that is to be set.
func (o *oracle) setError(key uint16) error {
	_, held := o.keys[key]
	switch {
	case held:
		return nil
	case o.closed:
		return timingwheel.ErrClosed
	case o.limit > 0 && len(o.keys) >= o.limit:
		return timingwheel.ErrFull
	}
	return nil
}

// touchError returns the error for a key that is to be reset or touched.
func (o *oracle) touchError(key uint16) error {
	_, held := o.keys[key]
	switch {
	case held:
		return nil
	case o.closed:
		return timingwheel.ErrClosed
	}
	return ErrAbsent
}

// next returns the key that ends next, at the latest at now.
func (o *oracle) next(now time.Duration) (key uint16, e oracleEntry, ok bool) {
	for k, x := range o.keys {
		if x.due <= now && (!ok || x.due < e.due || x.due == e.due && k < key) {
			key, e, ok = k, x, true
		}
	}
	return key, e, ok
}

// setAgain is the expiry function's effect on its key: some values are set once more, as another
// value, with this ttl.
func (o *oracle) setAgain(value int) (next int, ttl time.Duration, ok bool) {
	return value + 1<<20, o.tick * time.Duration(value%7) / 2, value%5 == 0 && value < 1<<20
}

type modelExpiry struct {
	key   uint16
	value int
	at    time.Duration
}

// model decodes ops into calls of a table and of the oracle, three bytes each, and compares
// every result and every expiry, with its time. The first bytes are the geometry: small, so
// that everything overflows.
func model(t *testing.T, ops []byte) {
	if len(ops) < 4 {
		return
	}
	o := &oracle{
		tick: []time.Duration{milli, 3 * milli, 7, 1}[ops[0]%4],
		keys: map[uint16]oracleEntry{},
	}
	if ops[1]&64 != 0 {
		o.limit = 3
	}
	options := timingwheel.Options{
		Tick: o.tick, WheelSize: 2 + int(ops[1]%4), Shards: 1 + int(ops[2]%4), Workers: 1 + int(ops[3]%4), MaxPending: o.limit,
	}
	ops = ops[4:]

	created := time.Now()
	var mu sync.Mutex
	var ended []modelExpiry
	var table *Table[uint16, int]
	table, err := New(func(key uint16, value int) {
		mu.Lock()
		ended = append(ended, modelExpiry{key, value, time.Since(created)})
		mu.Unlock()
		if v, ttl, ok := o.setAgain(value); ok {
			_ = table.Set(key, v, ttl) // there is capacity: its own
		}
	}, options)
	require.NoError(t, err)

	// compare lets due keys expire and compares them with the oracle's.
	compare := func() {
		t.Helper()
		synctest.Wait()
		now := time.Since(created)
		var want []modelExpiry
		for {
			key, e, ok := o.next(now)
			if !ok {
				break
			}
			want = append(want, modelExpiry{key, e.value, e.due})
			delete(o.keys, key)
			if v, ttl, ok := o.setAgain(e.value); ok && !o.closed {
				o.keys[key] = oracleEntry{v, o.deadline(e.due, ttl)}
			}
		}
		mu.Lock()
		got := ended
		ended = nil
		mu.Unlock()
		// In order of time; several workers may finish keys of one instant in any order.
		order := func(a, b modelExpiry) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.value, b.value), cmp.Compare(a.key, b.key))
		}
		slices.SortFunc(want, order)
		slices.SortFunc(got, order)
		require.Equal(t, want, got)
		require.Equal(t, len(o.keys), table.Len())
	}

	for n := 0; len(ops) >= 3; n++ {
		op, key, arg := ops[0], uint16(ops[1]%8), ops[2]
		ops = ops[3:]
		now := time.Since(created)
		ttl := time.Duration(int(arg)-16) * o.tick / 4 * time.Duration(1+int(op/16)) // -4 ticks to 60, or to 960
		e, held := o.keys[key]
		switch op % 16 {
		case 0, 1:
			err := o.setError(key)
			require.ErrorIs(t, table.Set(key, n, ttl), err)
			if err == nil {
				o.keys[key] = oracleEntry{n, o.deadline(now, ttl)}
			}
		case 2:
			err := o.setError(key)
			require.ErrorIs(t, table.SetAt(key, n, time.Now().Add(ttl)), err)
			if err == nil {
				o.keys[key] = oracleEntry{n, o.deadline(now, ttl)}
			}
		case 3:
			want := o.setError(key)
			actual, stored, err := table.SetIfAbsent(key, n, ttl)
			require.ErrorIs(t, err, want)
			require.Equal(t, want == nil && !held, stored)
			if stored {
				e = oracleEntry{n, o.deadline(now, ttl)}
				o.keys[key] = e
			}
			require.Equal(t, e.value, actual)
		case 4, 5:
			require.ErrorIs(t, table.Reset(key, ttl), o.touchError(key))
			if held {
				o.keys[key] = oracleEntry{e.value, o.deadline(now, ttl)}
			}
		case 6, 7:
			require.ErrorIs(t, table.Touch(key, ttl), o.touchError(key))
			if held {
				o.keys[key] = oracleEntry{e.value, max(e.due, o.deadline(now, ttl))}
			}
		case 8:
			value, ok := table.Remove(key)
			require.Equal(t, held, ok)
			require.Equal(t, e.value, value)
			delete(o.keys, key)
		case 9:
			value, ok := table.Get(key)
			require.Equal(t, held, ok)
			require.Equal(t, e.value, value)
			deadline, ok := table.Deadline(key)
			require.Equal(t, held, ok)
			if held {
				require.Equal(t, e.due, deadline.Sub(created))
			}
		case 10:
			left := map[uint16]int{}
			for k, e := range o.keys {
				left[k] = e.value
			}
			// All keys; or set the first key again, and stop.
			for k, value := range table.All() {
				want, ok := left[k]
				require.True(t, ok)
				require.Equal(t, want, value)
				delete(left, k)
				if arg%2 == 1 {
					require.NoError(t, table.Set(k, n, ttl))
					o.keys[k] = oracleEntry{n, o.deadline(now, ttl)}
					break
				}
			}
			if arg%2 == 0 {
				require.Empty(t, left)
			}
		case 11:
			if arg%4 != 0 { // rarely, or no key grows old
				break
			}
			before := o.keys
			o.keys = map[uint16]oracleEntry{}
			all := len(before)
			drained := table.Drain(func(k uint16, value int) {
				require.Equal(t, before[k].value, value)
				delete(before, k)
				err := table.Set(k, n, time.Hour)
				require.ErrorIs(t, err, o.setError(k))
				if k%2 == 0 && err == nil {
					o.keys[k] = oracleEntry{n, o.deadline(now, time.Hour)}
				} else if err == nil {
					table.Remove(k)
				}
			})
			require.Empty(t, before)
			require.Equal(t, all, drained)
		case 12: // many keys, so that the parts grow
			for k := uint16(100); k < 100+4*uint16(arg); k++ {
				err := o.setError(k)
				require.ErrorIs(t, table.Set(k, n, ttl), err)
				if err != nil {
					break
				}
				o.keys[k] = oracleEntry{n, o.deadline(now, ttl)}
				if ttl <= 0 { // by the time of the next call it may have expired
					compare()
				}
			}
		case 13: // and shrink
			for k := 100 + key; k < 100+4*uint16(arg); k++ {
				_, held := o.keys[k]
				_, ok := table.Remove(k)
				require.Equal(t, held, ok)
				delete(o.keys, k)
			}
		case 14:
			if arg%32 == 13 {
				_, err := table.Close(timingwheel.Await)
				require.NoError(t, err)
				o.closed = true
			}
		default:
			time.Sleep(max(ttl, 0))
		}
		compare()
		verify(t, table)
	}

	// Half of the remaining keys expire, and the other half is returned.
	var dues []time.Duration
	for _, e := range o.keys {
		dues = append(dues, e.due)
	}
	if len(dues) > 0 {
		slices.Sort(dues)
		time.Sleep(dues[len(dues)/2] - time.Since(created))
		compare()
	}
	returned, err := table.Shutdown(t.Context(), timingwheel.Return)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(returned, func(a, b timingwheel.Due[Entry[uint16, int]]) int {
		return a.Deadline.Compare(b.Deadline)
	}))
	got := map[uint16]oracleEntry{}
	for _, d := range returned {
		got[d.Value.Key] = oracleEntry{d.Value.Value, d.Deadline.Sub(created)}
	}
	require.Equal(t, o.keys, got)
	require.Len(t, returned, len(got))
	verify(t, table)
}

func TestModel(t *testing.T) {
	t.Parallel()
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	for seed := range rounds {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], uint64(seed))
		ops := make([]byte, 304)
		_, _ = rand.NewChaCha8(key).Read(ops)
		synctest.Test(t, func(t *testing.T) { model(t, ops) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 2, 0, 0, 0, 1, 48, 4, 1, 32, 15, 0, 40})             // set, shortened
	f.Add([]byte{1, 2, 1, 1, 0, 1, 48, 6, 1, 80, 15, 0, 60, 8, 1, 0})    // touched, removed
	f.Add([]byte{0, 66, 0, 0, 0, 1, 48, 11, 1, 0, 0, 1, 40, 15, 0, 99})  // drained, set again
	f.Add([]byte{0, 2, 0, 0, 12, 0, 200, 13, 1, 190, 10, 0, 0, 4, 0, 9}) // many, then few
	f.Add([]byte{0, 2, 0, 0, 0, 1, 48, 14, 0, 13, 0, 1, 80, 0, 2, 80})   // closed
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 1<<10 {
			return
		}
		synctest.Test(t, func(t *testing.T) { model(t, ops) })
	})
}
