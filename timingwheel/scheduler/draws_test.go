package scheduler

import "math/rand/v2"

// draws decides the steps of a model test.
type draws struct{ *rand.Rand }

func newDraws(seed uint64) draws { return draws{rand.New(rand.NewPCG(seed, 7))} }

func (d draws) below(n int) int { return d.IntN(n) }
