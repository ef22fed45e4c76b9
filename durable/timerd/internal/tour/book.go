package tour

import (
	"fmt"
	"strconv"
	"sync"
)

// book is what all ledgers say together.
type book struct {
	mu     sync.Mutex
	tails  []*tail
	timers map[int]*timerLife
	keys   map[int][]*step // in the order in which they were done
	acks   map[string]int  // by ID
	ids    map[string]int  // the numbers of timers that have begun
	wrong  map[int]bool    // keys, once they are checked

	live counts
}

// counts are for the table; what they cannot tell the check at the end does.
type counts struct {
	sent, scheduled, ran, repeated, cancelled int
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
		acks: make(map[string]int), ids: make(map[string]int), wrong: make(map[int]bool),
	}
	for _, p := range paths {
		b.tails = append(b.tails, &tail{path: p})
	}
	return b
}

// read takes in what is new in the ledgers.
func (b *book) read() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tails {
		if err := t.lines(b.line); err != nil {
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

// line takes in one line; see ledger for what they are.
func (b *book) line(f []string) (err error) {
	number := func(i int) int64 {
		if i >= len(f) {
			err = fmt.Errorf("it has %d fields", len(f))
			return 0
		}
		n, e := strconv.ParseInt(f[i], 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	text := func(i int) string {
		if i >= len(f) {
			err = fmt.Errorf("it has %d fields", len(f))
			return ""
		}
		return f[i]
	}
	at := number(1)
	switch text(0) {
	case "s":
		b.sent(b.timer(int(number(2))), int(number(3)), number(4), mode(text(5)))
	case "S":
		t := b.timer(int(number(2)))
		t.due = number(4)
		b.answered(t, at, text(3))
	case "c":
		b.cancelSent(int(number(2)))
	case "C":
		steps := b.keys[int(number(2))]
		last := steps[len(steps)-1]
		last.acked, last.result = at, text(3)
		if last.result == "cancelled" {
			b.live.cancelled++
		}
	case "m":
		t := b.timer(int(number(2)))
		t.moves = append(t.moves, move{sent: at, at: number(4)})
	case "M":
		t := b.timer(int(number(2)))
		last := &t.moves[len(t.moves)-1]
		last.acked, last.moved = at, text(4) == "moved"
	case "b":
		t := b.timer(int(number(2)))
		t.begins = append(t.begins, at)
		b.ids[text(3)] = int(number(2))
	case "a":
		b.acks[text(2)]++
	case "r":
		b.arrived(b.timer(int(number(2))), at, number(5) == 200)
	default:
		err = fmt.Errorf("unknown kind")
	}
	return err
}

// sent takes in a schedule that is sent, for the first time or again. A key's
// operations are done one after another, so a key's last step is the one that is
// under way.
func (b *book) sent(t *timerLife, key int, notBefore int64, m mode) {
	b.live.sent++
	steps := b.keys[key]
	if n := len(steps); n > 0 && steps[n-1].timer == t {
		steps[n-1].sends++
		b.live.sent--
		t.notBefore = min(t.notBefore, notBefore)
		return
	}
	t.key, t.mode, t.notBefore = key, m, notBefore
	t.step = &step{timer: t, sends: 1}
	b.keys[key] = append(steps, t.step)
}

func (b *book) answered(t *timerLife, at int64, result string) {
	b.live.scheduled++
	t.step.acked, t.step.result = at, result
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
