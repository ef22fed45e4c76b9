package calls

import "github.com/seed-782fa212/limbo/timingwheel"

// Levels returns the levels of the timing wheel; see [timingwheel.Wheel.Levels].
func (t *Table[ID, R]) Levels() []timingwheel.Level {
	t.mustBeMade()
	return t.wheel.Levels()
}
