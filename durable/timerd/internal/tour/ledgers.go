package tour

import (
	"fmt"
	"sync"
)

// history combines the events of all ledgers.
type history struct {
	mu     sync.Mutex
	tails  []*tail
	timers map[int]*timerLife
	keys   map[int][]*step // by key, in their order
	acks   map[string]int  // acknowledgements by ID
	ids    map[string]int  // numbers of the timers that have begun, by ID
	wrong  map[string]bool // names of the keys with errors, set by check

	schedules   map[int]*scheduleLife // by number
	latest      map[int]int           // number of the latest schedule, by key number
	occurrences map[string]int        // numbers of schedules, by ID of the occurrence

	live counts
}

// counts are the values of the table during the tour. The check at the end computes the rest.
type counts struct {
	sent, scheduled, ran, repeated, cancelled, occurrences int
}

// step is a schedule or a cancel of a key.
type step struct {
	timer  *timerLife // nil: a cancel
	sends  int        // more than one if an answer was lost
	acked  int64      // 0: no answer yet
	result string
}

// timerLife is the lifecycle of one timer. Times are in microseconds.
type timerLife struct {
	step      *step
	key       int
	mode      mode
	notBefore int64 // ms; of the first send
	due       int64 // ms, as the store answered
	moves     []move
	begins    []int64 // of its handlers
	arrivals  []int64 // of its callbacks, when they were answered
	succeeded int     // callbacks answered with 200
}

// move is a reschedule.
type move struct {
	at          int64 // ms
	sent, acked int64
	moved       bool
}

func newBook(paths ...string) *history {
	b := &history{
		timers: make(map[int]*timerLife), keys: make(map[int][]*step),
		acks: make(map[string]int), ids: make(map[string]int), wrong: make(map[string]bool),
		schedules: make(map[int]*scheduleLife), latest: make(map[int]int), occurrences: make(map[string]int),
	}
	for _, p := range paths {
		b.tails = append(b.tails, &tail{path: p})
	}
	return b
}

// read adds the new events of all ledgers.
func (b *history) read() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tails {
		if err := t.events(b.add); err != nil {
			return err
		}
	}
	return nil
}

func (b *history) liveCounts() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

func (b *history) timer(number int) *timerLife {
	t := b.timers[number]
	if t == nil {
		t = &timerLife{}
		b.timers[number] = t
	}
	return t
}

// add adds an event.
func (b *history) add(e event) error {
	if e.Schedule != 0 {
		return b.addSchedule(e)
	}
	switch e.Kind {
	case eventSchedule:
		b.sent(b.timer(e.Timer), e)
	case eventScheduled:
		t := b.timer(e.Timer)
		t.due = e.Due
		t.step.acked, t.step.result = e.At, e.Result
		b.live.scheduled++
	case eventCancel:
		b.cancelSent(e.Key)
	case eventCancelled:
		steps := b.keys[e.Key]
		last := steps[len(steps)-1]
		last.acked, last.result = e.At, e.Result
		if e.Result == "cancelled" {
			b.live.cancelled++
		}
	case eventMove:
		t := b.timer(e.Timer)
		t.moves = append(t.moves, move{sent: e.At, at: e.Due})
	case eventMoved:
		t := b.timer(e.Timer)
		last := &t.moves[len(t.moves)-1]
		last.acked, last.moved = e.At, e.Result == "moved"
	case eventBegins:
		t := b.timer(e.Timer)
		t.begins = append(t.begins, e.At)
		b.ids[e.ID] = e.Timer
	case eventAcknowledged:
		b.acks[e.ID]++
	case eventReplies:
		b.arrived(b.timer(e.Timer), e.At, e.Status == 200)
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

// sent adds a schedule request, which can be a repetition. Operations on a key do not overlap, so
// the key's last step is the one in progress.
func (b *history) sent(t *timerLife, e event) {
	b.live.sent++
	steps := b.keys[e.Key]
	if n := len(steps); n > 0 && steps[n-1].timer == t {
		steps[n-1].sends++
		b.live.sent--
		t.notBefore = min(t.notBefore, e.NotBefore)
		return
	}
	t.key, t.mode, t.notBefore = e.Key, e.Mode, e.NotBefore
	t.step = &step{timer: t, sends: 1}
	b.keys[e.Key] = append(steps, t.step)
}

func (b *history) cancelSent(key int) {
	steps := b.keys[key]
	if n := len(steps); n > 0 && steps[n-1].timer == nil && steps[n-1].acked == 0 {
		steps[n-1].sends++
		return
	}
	b.keys[key] = append(steps, &step{sends: 1})
}

func (b *history) arrived(t *timerLife, at int64, succeeded bool) {
	t.arrivals = append(t.arrivals, at)
	if !succeeded {
		return
	}
	t.succeeded++
	if t.succeeded == 1 {
		b.live.ran++
	} else {
		b.live.repeated++
	}
}
