package timingwheel

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// keyedOracle is a table without any idea: a map from keys to deadlines in
// whole ticks, that is searched for what comes next.
type keyedOracle struct {
	tick time.Duration
	keys map[byte]keyedOracleEntry
}

type keyedOracleEntry struct {
	value int
	due   time.Duration // after the table was made; a whole tick, or at once
}

// due is when what is to live for ttl from now on must end.
func (o *keyedOracle) due(now, ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return now
	}
	return (now + ttl + o.tick - 1) / o.tick * o.tick
}

// next is the key that ends next, at the latest at now.
func (o *keyedOracle) next(now time.Duration) (key byte, e keyedOracleEntry, ok bool) {
	for k, x := range o.keys {
		if x.due <= now && (!ok || x.due < e.due || x.due == e.due && k < key) {
			key, e, ok = k, x, true
		}
	}
	return key, e, ok
}

type keyedModelEnd struct {
	key   byte
	value int
	at    time.Duration
}

// again is what the expiry function does with its key: some values come back
// once, as another, for this long.
func (e keyedOracleEntry) again(tick time.Duration) (value int, ttl time.Duration, ok bool) {
	return e.value + 1<<20, tick * time.Duration(e.value%7) / 2, e.value%5 == 0 && e.value < 1<<20
}

// keyedModel decodes ops into calls of a table and of the oracle, three bytes
// each, and compares every answer and every expiry, with its time. The first
// bytes are the geometry: small, so that everything cascades.
func keyedModel(t *testing.T, ops []byte) {
	if len(ops) < 4 {
		return
	}
	o := &keyedOracle{
		tick: []time.Duration{time.Millisecond, 3 * time.Millisecond, 7, 1}[ops[0]%4],
		keys: map[byte]keyedOracleEntry{},
	}
	options := Options{Tick: o.tick, WheelSize: 2 + int(ops[1]%4), Shards: 1 + int(ops[2]%4), Workers: 1 + int(ops[3]%4)}
	if ops[1]&64 != 0 {
		options.MaxPending = 3
	}
	ops = ops[4:]

	born := time.Now()
	var mu sync.Mutex
	var ended []keyedModelEnd
	var table *Keyed[byte, int]
	table, err := NewKeyed(func(key byte, value int) {
		mu.Lock()
		ended = append(ended, keyedModelEnd{key, value, time.Since(born)})
		mu.Unlock()
		if v, ttl, ok := (keyedOracleEntry{value: value}).again(o.tick); ok {
			_ = table.Set(key, v, ttl) // there is room: its own
		}
	}, options)
	require.NoError(t, err)
	defer func() {
		_, err := table.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
	}()

	// settle lets what is due happen and compares it with the oracle's.
	settle := func() {
		t.Helper()
		synctest.Wait()
		now := time.Since(born)
		var want []keyedModelEnd
		for {
			key, e, ok := o.next(now)
			if !ok {
				break
			}
			want = append(want, keyedModelEnd{key, e.value, e.due})
			delete(o.keys, key)
			if v, ttl, ok := e.again(o.tick); ok {
				o.keys[key] = keyedOracleEntry{v, o.due(e.due, ttl)}
			}
		}
		mu.Lock()
		got := ended
		ended = nil
		mu.Unlock()
		// In order of time; which of one instant runs first, among several
		// workers, nobody has promised.
		order := func(a, b keyedModelEnd) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.value, b.value), cmp.Compare(a.key, b.key))
		}
		slices.SortFunc(want, order)
		slices.SortStableFunc(got, order)
		require.Equal(t, want, got)
		require.Equal(t, len(o.keys), table.Len())
	}

	for n := 0; len(ops) >= 3; n++ {
		op, key, arg := ops[0], ops[1]%8, ops[2]
		ops = ops[3:]
		now := time.Since(born)
		ttl := time.Duration(int(arg)-16) * o.tick / 4 * time.Duration(1+int(op/16)) // -4 ticks to 60, or to 960
		e, there := o.keys[key]
		switch op % 16 {
		case 0, 1, 2, 3: // Set, SetAt
			if op%16 == 3 {
				err = table.SetAt(key, n, time.Now().Add(ttl))
			} else {
				err = table.Set(key, n, ttl)
			}
			if !there && options.MaxPending > 0 && len(o.keys) >= options.MaxPending {
				require.ErrorIs(t, err, ErrFull)
				break
			}
			require.NoError(t, err)
			o.keys[key] = keyedOracleEntry{n, o.due(now, ttl)}
		case 4, 5:
			require.Equal(t, there, table.Move(key, ttl))
			if there {
				o.keys[key] = keyedOracleEntry{e.value, o.due(now, ttl)}
			}
		case 6, 7, 8:
			require.Equal(t, there, table.Touch(key, ttl))
			if there {
				o.keys[key] = keyedOracleEntry{e.value, max(e.due, o.due(now, ttl))}
			}
		case 9:
			value, ok := table.Remove(key)
			require.Equal(t, there, ok)
			require.Equal(t, e.value, value)
			delete(o.keys, key)
		case 10:
			value, ok := table.Get(key)
			require.Equal(t, there, ok)
			require.Equal(t, e.value, value)
		case 11:
			left := map[byte]int{}
			for k, e := range o.keys {
				left[k] = e.value
			}
			// Range all; or set the key that comes first again, and stop.
			table.Range(func(k byte, value int) bool {
				want, ok := left[k]
				require.True(t, ok)
				require.Equal(t, want, value)
				delete(left, k)
				if arg%2 == 0 {
					return true
				}
				require.NoError(t, table.Set(k, n, ttl))
				o.keys[k] = keyedOracleEntry{n, o.due(now, ttl)}
				return false
			})
			if arg%2 == 0 {
				require.Empty(t, left)
			}
		case 12:
			if arg%4 != 0 { // seldom, or nothing ever grows old
				break
			}
			before := o.keys
			o.keys = map[byte]keyedOracleEntry{}
			drained := table.Drain(func(k byte, value int) {
				require.Equal(t, before[k].value, value)
				delete(before, k)
				if k%2 == 0 {
					require.NoError(t, table.Set(k, n, time.Hour)) // stays
					o.keys[k] = keyedOracleEntry{n, o.due(now, time.Hour)}
				}
			})
			require.Empty(t, before)
			require.GreaterOrEqual(t, drained, len(o.keys))
		default:
			time.Sleep(max(ttl, 0))
		}
		settle()
		keyedVerify(t, table)
	}
	// To the end of everything, but not of the hour that Drain gave.
	for range 4 {
		time.Sleep(1000 * o.tick)
		settle()
	}
	time.Sleep(2 * time.Hour)
	settle()
	require.Zero(t, table.Len())
}

func TestKeyedModel(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], uint64(seed))
		ops := make([]byte, 304)
		_, _ = rand.NewChaCha8(key).Read(ops)
		synctest.Test(t, func(t *testing.T) { keyedModel(t, ops) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzKeyed(f *testing.F) {
	f.Add([]byte{0, 2, 0, 0, 0, 1, 48, 4, 1, 32, 13, 0, 40})            // set, moved in
	f.Add([]byte{1, 2, 1, 1, 0, 1, 48, 6, 1, 80, 13, 0, 60, 9, 1, 0})   // touched, removed
	f.Add([]byte{0, 66, 0, 0, 0, 1, 48, 12, 1, 0, 0, 1, 40, 13, 0, 99}) // drained, set again
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 1<<10 {
			return
		}
		synctest.Test(t, func(t *testing.T) { keyedModel(t, ops) })
	})
}
