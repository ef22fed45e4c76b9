package tour

import (
	"fmt"
	"sync"
)

// book is what the events of all ledgers amount to.
type book struct {
	mu     sync.Mutex
	tails  []*tail
	timers map[int]*timerLife
	keys   map[int][]*step // in the order in which they were done
	acks   map[string]int  // by ID
	ids    map[string]int  // the numbers of timers that have begun
	wrong  map[string]bool // names of keys, once they are checked

	schedules   map[int]*scheduleLife // by number
	latest      map[int]int           // schedules, by the number of their keys
	occurrences map[string]int        // schedules, by the IDs of their occurrences

	live counts
}

// counts are for the table; what they cannot tell the check at the end does.
type counts struct {
	sent, scheduled, ran, repeated, cancelled, occurrences int
}

// step is a schedule or a cancel of a key.
type step struct {
	timer  *timerLife // nil: a cancel
	sends  int        // more than one: an answer was lost
	acked  int64      // 0: no answer yet
	result string
}

// timerLife is what happened to one timer. Times are microseconds.
type timerLife struct {
	step      *step
	key       int
	mode      mode
	notBefore int64 // ms; of the first send
	due       int64 // ms, as the store answered
	moves     []move
	begins    []int64 // of its handlers
	arrivals  []int64 // of its call-backs, as they were answered
	succeeded int     // call-backs answered with 200
}

// move is a reschedule.
type move struct {
	at          int64 // ms
	sent, acked int64
	moved       bool
}

func newBook(paths ...string) *book {
	b := &book{
		timers: make(map[int]*timerLife), keys: make(map[int][]*step),
		acks: make(map[string]int), ids: make(map[string]int), wrong: make(map[string]bool),
		schedules: make(map[int]*scheduleLife), latest: make(map[int]int), occurrences: make(map[string]int),
	}
	for _, p := range paths {
		b.tails = append(b.tails, &tail{path: p})
	}
	return b
}

// read adds what is new in the ledgers.
func (b *book) read() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tails {
		if err := t.events(b.add); err != nil {
			return err
		}
	}
	return nil
}

func (b *book) liveCounts() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

func (b *book) timer(number int) *timerLife {
	t := b.timers[number]
	if t == nil {
		t = &timerLife{}
		b.timers[number] = t
	}
	return t
}

// add adds an event.
func (b *book) add(e event) error {
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

// sent adds a schedule that is sent, for the first time or again. A key's operations are
// done one after another, so a key's last step is the one that is under way.
func (b *book) sent(t *timerLife, e event) {
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

func (b *book) cancelSent(key int) {
	steps := b.keys[key]
	if n := len(steps); n > 0 && steps[n-1].timer == nil && steps[n-1].acked == 0 {
		steps[n-1].sends++
		return
	}
	b.keys[key] = append(steps, &step{sends: 1})
}

func (b *book) arrived(t *timerLife, at int64, succeeded bool) {
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
