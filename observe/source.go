package observe

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// Source is an observable part of limbo. Make one with the function for its kind; each panics if
// its argument is nil.
type Source struct {
	kind   string
	custom *custom                       // nil if it is not custom
	read   func(*metricList, statsCache) // writes the metrics; called from any goroutine
	levels func() []timingwheel.Level    // of a wheel; nil for others
	walk   func(*walk)                   // calls visit for each pending operation; nil if it cannot be listed
	oldest func() []Group                // the oldest pending operations; not nil if walk is not
	hot    func(n int) []HotKey          // the keys with the most operations; nil if it has no keys
	shared any                           // identity of a wheel that may be shared; nil if it cannot be
	wheels []wheelOf                     // wheels that are observed with it
}

// wheelOf is the wheel of a source.
type wheelOf struct {
	suffix string // of the wheel's name
	Source
}

// statsCache caches statistics that several sources use, during one read of all, by the address
// of their owner.
type statsCache map[any]any

func once[S any](p statsCache, of any, read func() S) S {
	if st, ok := p[of]; ok {
		return st.(S)
	}
	st := read()
	p[of] = st
	return st
}

// Wheeled is what [Wheel] observes: a *timingwheel.Wheel, a *keyed.Table or a
// *purgatory.Clock.
type Wheeled interface {
	Stats() timingwheel.Stats
	Levels() []timingwheel.Level
}

// Wheel returns the source for a wheel or for a table of keys with deadlines. It is of the kind
// wheel. If Stats panics, the source has no metrics; if Levels panics, it has no levels. The
// Problem of its [Reading] contains the panic.
func Wheel(w Wheeled) Source {
	must(w != nil && !isNil(w), "Wheel", "nil")
	s := Source{
		kind:   "wheel",
		read:   func(s *metricList, _ statsCache) { s.wheel(w.Stats()) },
		levels: w.Levels,
	}
	if reflect.ValueOf(w).Comparable() { // a user's type may not be comparable
		s.shared = w
	}
	return s
}

func isNil(w Wheeled) bool {
	v := reflect.ValueOf(w)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// must panics if a source has no object to observe, which is the caller's mistake.
func must(ok bool, function, of string) {
	if !ok {
		panic("observe: " + function + " of " + of)
	}
}

// Scheduler returns the source for a scheduler, of the kind scheduler, with two wheels: that of
// its calls, and that of its jobs, whose name ends with " jobs".
func Scheduler(s *scheduler.Scheduler) Source {
	must(s != nil, "Scheduler", "nil")
	return Source{
		kind: "scheduler",
		read: func(out *metricList, p statsCache) { out.scheduler(once(p, s, s.Stats)) },
		wheels: []wheelOf{
			wheelIn("", s, s.Stats, func(st scheduler.Stats) timingwheel.Stats { return st.CallWheel },
				func() []timingwheel.Level { calls, _ := s.Levels(); return calls }),
			wheelIn(" jobs", s, s.Stats, func(st scheduler.Stats) timingwheel.Stats { return st.JobWheel },
				func() []timingwheel.Level { _, jobs := s.Levels(); return jobs }),
		},
	}
}

// wheelIn returns one of the wheels of an object, whose statistics are part of the object's.
func wheelIn[S any](suffix string, of any, read func() S, stats func(S) timingwheel.Stats, levels func() []timingwheel.Level) wheelOf {
	return wheelOf{suffix, Source{
		kind:   "wheel",
		read:   func(out *metricList, p statsCache) { out.wheel(stats(once(p, of, read))) },
		levels: levels,
	}}
}

// Purgatory returns the source for a purgatory, of the kind purgatory, with its wheel. format
// returns the text of a key; any goroutine may call it at any time. If format is nil, a string
// is shown as it is, a pointer without a String, Error or Format method as its type and address,
// anything else as %v prints it. Keys are cut to 128 bytes, and are visible only on the page.
func Purgatory[K comparable](p *purgatory.Purgatory[K], format func(K) string) Source {
	must(p != nil, "Purgatory", "nil")
	keys := formatter(format)
	keysOf := func(x purgatory.Waiting[K]) []string { return names(x.Keys(), keys) }
	return Source{
		kind: "purgatory",
		read: func(s *metricList, _ statsCache) { s.purgatory(p.Stats()) },
		walk: func(w *walk) {
			for x := range p.All() {
				if !visit(w, x, x.Age, x.Deadline, keysOf) {
					return
				}
			}
		},
		oldest: func() []Group {
			return groupsOf(p.Oldest(oldest), func(x purgatory.Waiting[K]) Waiting { return waiting(x.Age, x.Deadline, keysOf(x)) })
		},
		hot:    func(n int) []HotKey { return hotKeys(p.Hotspots(n), keys) },
		wheels: []wheelOf{{"", Wheel(p.Clock())}},
	}
}

// Threshold returns the source for a threshold; see [Purgatory]. It lists goals one by one, each
// as its key and its number.
func Threshold[K comparable, N cmp.Ordered](t *purgatory.Threshold[K, N], format func(K) string) Source {
	must(t != nil, "Threshold", "nil")
	keys := formatter(format)
	keysOf := func(x purgatory.WaitingGoal[K, N]) []string {
		return []string{fmt.Sprintf("%s ≥ %v", keys(x.Key), x.Number)}
	}
	return Source{
		kind: "purgatory",
		read: func(s *metricList, _ statsCache) { s.purgatory(t.Stats()) },
		walk: func(w *walk) {
			for x := range t.All() {
				if !visit(w, x, x.Age, x.Deadline, keysOf) {
					return
				}
			}
		},
		oldest: func() []Group {
			return groupsOf(t.Oldest(oldest), func(x purgatory.WaitingGoal[K, N]) Waiting { return waiting(x.Age, x.Deadline, keysOf(x)) })
		},
		hot:    func(n int) []HotKey { return hotKeys(t.Hotspots(n), keys) },
		wheels: []wheelOf{{"", Wheel(t.Clock())}},
	}
}

// Futures returns the source for futures, of the kind purgatory. They have no keys.
func Futures[T any](f *purgatory.Futures[T]) Source {
	must(f != nil, "Futures", "nil")
	return Source{
		kind:   "purgatory",
		read:   func(s *metricList, _ statsCache) { s.purgatory(f.Stats()) },
		wheels: []wheelOf{{"", Wheel(f.Clock())}},
	}
}

// Calls returns the source for a table of requests in flight, of the kind calls, with two wheels:
// that of the timeouts of calls of Do, and that of calls of Go, whose name ends with " go". format
// returns the text of an id, as in [Purgatory].
func Calls[ID comparable, R any](t *calls.Table[ID, R], format func(ID) string) Source {
	must(t != nil, "Calls", "nil")
	ids := formatter(format)
	keysOf := func(x calls.Waiting[ID]) []string { return []string{ids(x.ID)} }
	return Source{
		kind: "calls",
		read: func(s *metricList, p statsCache) { s.calls(once(p, t, t.Stats)) },
		walk: func(w *walk) {
			for x := range t.All() {
				if !visit(w, x, x.Age, x.Deadline, keysOf) {
					return
				}
			}
		},
		oldest: func() []Group {
			return groupsOf(t.Oldest(listed), func(x calls.Waiting[ID]) Waiting { return waiting(x.Age, x.Deadline, keysOf(x)) })
		},
		wheels: []wheelOf{
			wheelIn("", t, t.Stats, func(st calls.Stats) timingwheel.Stats { return st.DoWheel },
				func() []timingwheel.Level { ofDo, _ := t.Levels(); return ofDo }),
			wheelIn(" go", t, t.Stats, func(st calls.Stats) timingwheel.Stats { return st.GoWheel },
				func() []timingwheel.Level { _, ofGo := t.Levels(); return ofGo }),
		},
	}
}

// Polls returns the source for long polls, of the kind polls.
func Polls(p *longpoll.Polls) Source {
	must(p != nil, "Polls", "nil")
	return Source{kind: "polls", read: func(s *metricList, _ statsCache) { s.polls(p.Stats()) }}
}

// Queue returns the source for a delay queue, of the kind queue.
func Queue[T any](q *delayqueue.Queue[T]) Source {
	must(q != nil, "Queue", "nil")
	return Source{kind: "queue", read: func(s *metricList, _ statsCache) { s.queue(q.Len(), q.Stats()) }}
}
