package calls

import "github.com/seed-782fa212/limbo/timingwheel"

// Levels returns the levels of the wheels with the timeouts of calls of Do and of calls of Go;
// see [timingwheel.Wheel.Levels].
func (t *Table[ID, R]) Levels() (ofDo, ofGo []timingwheel.Level) {
	t.mustBeMade()
	if w := t.goWheel.Load(); w != nil {
		ofGo = w.Levels()
	}
	return t.doWheel.Levels(), ofGo
}
