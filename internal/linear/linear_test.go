package linear

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// call writes a register, or reads it if write is 0.
type call struct{ write int }

func register(state int, c call, answer int) (bool, int) {
	if c.write != 0 {
		return true, c.write
	}
	return answer == state, state
}

func write(value int, begin, end int64) Operation[call, int] {
	return Operation[call, int]{call{value}, 0, begin, end}
}

func read(value int, begin, end int64) Operation[call, int] {
	return Operation[call, int]{call{}, value, begin, end}
}

func TestLinearizable(t *testing.T) {
	for name, c := range map[string]struct {
		operations []Operation[call, int]
		want       bool
	}{
		"none":                                 {nil, true},
		"one after the other":                  {[]Operation[call, int]{write(1, 0, 1), read(1, 2, 3)}, true},
		"a value that was not written":         {[]Operation[call, int]{write(1, 0, 1), read(2, 2, 3)}, false},
		"the value before a write":             {[]Operation[call, int]{write(1, 0, 1), read(0, 2, 3)}, false},
		"the value before a write in progress": {[]Operation[call, int]{write(1, 0, 5), read(0, 2, 3)}, true},
		"begins as another ends":               {[]Operation[call, int]{write(1, 0, 2), read(0, 2, 3)}, true},
		"back to an older value":               {[]Operation[call, int]{write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)}, false},
		"not in the order of their begins": {
			[]Operation[call, int]{read(2, 6, 7), write(2, 1, 5), write(1, 0, 9), read(1, 2, 3)}, true,
		},
	} {
		require.Equal(t, c.want, Linearizable(0, register, c.operations), name)
	}
}

// Without its memory of dead ends the search would not end.
func TestManyThatOverlap(t *testing.T) {
	var operations []Operation[call, int]
	for i := range int64(18) {
		operations = append(operations, write(1, i, 100))
	}
	require.True(t, Linearizable(0, register, append(operations, read(1, 50, 60))))
	require.False(t, Linearizable(0, register, append(operations, read(2, 50, 60))))
}

// A history of calls that took effect between begin and end is linearizable, regardless of its
// length.
func TestLongHistory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var operations []Operation[call, int]
	state := 0
	for at := range int64(20_000) {
		o := read(state, at-rnd.Int64N(4), at+rnd.Int64N(4))
		if rnd.IntN(3) == 0 {
			state = 1 + rnd.IntN(3)
			o.Call.write, o.Answer = state, 0
		}
		operations = append(operations, o)
	}
	require.True(t, Linearizable(0, register, operations))
	operations[len(operations)/2] = read(9, 10_000, 10_000)
	require.False(t, Linearizable(0, register, operations))
}

// Linearizable gives the same result as trying every order.
func TestLinearizableLikeEveryOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	found := map[bool]int{}
	for range 3000 {
		var operations []Operation[call, int]
		for range 1 + rnd.IntN(6) {
			begin := rnd.Int64N(8)
			o := read(rnd.IntN(3), begin, begin+rnd.Int64N(5))
			if rnd.IntN(2) == 0 {
				o = write(1+rnd.IntN(2), o.Begin, o.End)
			}
			operations = append(operations, o)
		}
		want := everyOrder(0, operations)
		found[want]++
		require.Equal(t, want, Linearizable(0, register, operations), "%+v", operations)
	}
	require.Greater(t, min(found[true], found[false]), 500)
}

func everyOrder(state int, left []Operation[call, int]) bool {
	if len(left) == 0 {
		return true
	}
	for i, o := range left {
		allowed := true
		var others []Operation[call, int]
		for j, other := range left {
			if j != i {
				allowed = allowed && other.End >= o.Begin
				others = append(others, other)
			}
		}
		if ok, after := register(state, o.Call, o.Answer); allowed && ok && everyOrder(after, others) {
			return true
		}
	}
	return false
}
