package main

import (
	"fmt"
	"sync"
)

// history combines the events of all ledgers.
type history struct {
	mu         sync.Mutex
	tails      []*tail
	timers     map[int]*timerLifecycle
	keys       map[int][]*step // by key, in their order
	acks       map[string]int  // acknowledgements by ID
	ids        map[string]int  // numbers of the timers that have begun, by ID
	failedKeys map[string]bool // names of the keys with errors, set by check

	schedules   map[int]*scheduleLifecycle // by number
	latest      map[int]int                // number of the latest schedule, by key number
	occurrences map[string]int             // numbers of schedules, by ID of the occurrence

	live counts
}

// counts are printed during the tour. The check at the end computes the rest.
type counts struct {
	sent, scheduled, ran, repeated, cancelled, occurrences int
}

// step is a schedule or a cancel of a key.
type step struct {
	timer  *timerLifecycle // nil: a cancel
	sends  int             // more than one if an answer was lost
	acked  int64           // 0: no answer yet
	result string
}

// timerLifecycle is the lifecycle of one timer. Times are in microseconds.
type timerLifecycle struct {
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

func newHistory(paths ...string) *history {
	h := &history{
		timers: make(map[int]*timerLifecycle), keys: make(map[int][]*step),
		acks: make(map[string]int), ids: make(map[string]int), failedKeys: make(map[string]bool),
		schedules: make(map[int]*scheduleLifecycle), latest: make(map[int]int), occurrences: make(map[string]int),
	}
	for _, p := range paths {
		h.tails = append(h.tails, &tail{path: p})
	}
	return h
}

// read adds the new events of all ledgers.
func (h *history) read() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tails {
		if err := t.events(h.add); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) liveCounts() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

func (h *history) timer(number int) *timerLifecycle {
	t := h.timers[number]
	if t == nil {
		t = &timerLifecycle{}
		h.timers[number] = t
	}
	return t
}

// add adds an event.
func (h *history) add(e event) error {
	if e.Schedule != 0 {
		return h.addSchedule(e)
	}
	switch e.Kind {
	case eventSchedule:
		h.sent(h.timer(e.Timer), e)
	case eventScheduled:
		t := h.timer(e.Timer)
		t.due = e.Due
		t.step.acked, t.step.result = e.At, e.Result
		h.live.scheduled++
	case eventCancel:
		h.cancelSent(e.Key)
	case eventCancelled:
		steps := h.keys[e.Key]
		last := steps[len(steps)-1]
		last.acked, last.result = e.At, e.Result
		if e.Result == "cancelled" {
			h.live.cancelled++
		}
	case eventMove:
		t := h.timer(e.Timer)
		t.moves = append(t.moves, move{sent: e.At, at: e.Due})
	case eventMoved:
		t := h.timer(e.Timer)
		last := &t.moves[len(t.moves)-1]
		last.acked, last.moved = e.At, e.Result == "moved"
	case eventBegins:
		t := h.timer(e.Timer)
		t.begins = append(t.begins, e.At)
		h.ids[e.ID] = e.Timer
	case eventAcknowledged:
		h.acks[e.ID]++
	case eventReplies:
		h.arrived(h.timer(e.Timer), e.At, e.Status == 200)
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

// sent adds a schedule request, which can be a repetition. Operations on a key do not overlap, so
// the key's last step is the one in progress.
func (h *history) sent(t *timerLifecycle, e event) {
	h.live.sent++
	steps := h.keys[e.Key]
	if n := len(steps); n > 0 && steps[n-1].timer == t {
		steps[n-1].sends++
		h.live.sent--
		t.notBefore = min(t.notBefore, e.NotBefore)
		return
	}
	t.key, t.mode, t.notBefore = e.Key, e.Mode, e.NotBefore
	t.step = &step{timer: t, sends: 1}
	h.keys[e.Key] = append(steps, t.step)
}

func (h *history) cancelSent(key int) {
	steps := h.keys[key]
	if n := len(steps); n > 0 && steps[n-1].timer == nil && steps[n-1].acked == 0 {
		steps[n-1].sends++
		return
	}
	h.keys[key] = append(steps, &step{sends: 1})
}

func (h *history) arrived(t *timerLifecycle, at int64, succeeded bool) {
	t.arrivals = append(t.arrivals, at)
	if !succeeded {
		return
	}
	t.succeeded++
	if t.succeeded == 1 {
		h.live.ran++
	} else {
		h.live.repeated++
	}
}
