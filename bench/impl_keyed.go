package main

// limbo's timingwheel.Keyed is one more rival for W6, "keyed": its Touch is
// what heartbeats are for. It comes with that type; until then it is a gap. To
// add it, write here a Timers[uint64] whose handle is the key, as in
// impl_gozero.go:
//
//	var keyedRival = rival{
//		name: "keyed", setup: "limbo's Keyed[uint64, struct{}], zero Options: tick 1 ms",
//		does: []string{"W6"}, bytes: 120, run: inProcess(openKeyed),
//	}
//
// where StartID(id, d) is Set(id, struct{}{}, d) and returns id, Reset(h, d) is
// Touch(h, d), and Stop(h) is Remove(h); and name it in rivals.go.
