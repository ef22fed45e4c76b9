package checks

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/linear"
)

// internal/linear, which checks the histories of engines without a dependency, gives the same results as
// Porcupine.
func TestLinearizableAsPorcupineDoes(t *testing.T) {
	// A call swaps a register for write, and returns its previous value.
	type call struct{ write int }
	step := func(state int, c call, answer int) (bool, int) { return answer == state, c.write }
	model := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			return step(state.(int), input.(call), output.(int))
		},
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	found := map[bool]int{}
	for range 3000 {
		// The calls take effect between begin and end. Half of the histories contain occasional
		// wrong answers.
		var operations []linear.Operation[call, int]
		var history []porcupine.Operation
		state, wrong := 0, rnd.IntN(2) == 0
		for at := range int64(2 + rnd.IntN(30)) {
			o := linear.Operation[call, int]{Call: call{rnd.IntN(3)}, Answer: state, Begin: at - rnd.Int64N(5), End: at + rnd.Int64N(5)}
			state = o.Call.write
			if wrong && rnd.IntN(15) == 0 {
				o.Answer = rnd.IntN(3)
			}
			operations = append(operations, o)
			history = append(history, porcupine.Operation{ClientId: int(at), Input: o.Call, Output: o.Answer, Call: o.Begin, Return: o.End})
		}
		want := porcupine.CheckOperations(model, history)
		found[want]++
		require.Equal(t, want, linear.Linearizable(0, step, operations), "%+v", operations)
	}
	require.Greater(t, min(found[true], found[false]), 300)
}
