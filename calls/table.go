package calls

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/internal/best"
	"github.com/seed-782fa212/limbo/internal/goexit"
	"github.com/seed-782fa212/limbo/internal/limit"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// NoTimeout is the timeout of a call that never expires.
const NoTimeout time.Duration = 1<<63 - 1

// Options configures a table. The zero value is a good default.
type Options struct {
	// Name names the table in Stats, and is the value of the pprof label "limbo" of its
	// goroutines. Default: none.
	Name string

	// MaxPending bounds the number of pending calls, in all groups; a call beyond it gets
	// ErrFull. Default 0: no bound but memory.
	MaxPending int

	// Tick is how late a call may expire; it never expires early. Default 500 µs; at
	// least 1 ns.
	Tick time.Duration

	// Workers bounds the goroutines that run the done functions of expired calls and,
	// separately, those that wake the goroutines of expired calls of Do: while all of the first
	// block, further expiring calls of Go wait, and those of Do do not. Default: GOMAXPROCS, at
	// least 4; 1 to 65,536. Raise it when done functions block.
	Workers int

	// OnPanic is called with each panic of a done function, on the goroutine that recovered it.
	// Default: log an error with slog's default logger, which also receives OnPanic's own
	// panics.
	OnPanic func(timingwheel.Panic)
}

// Table holds calls that wait for their replies or their timeouts. ID identifies the call of a
// reply, and R is the reply. Make one with [New]: the zero Table is not usable, and its methods
// panic. It runs goroutines until it is shut down. All methods are safe for use from any
// goroutine, done functions included.
type Table[ID comparable, R any] struct {
	options   Options
	doWheel   *timingwheel.Wheel[*call[ID, R]] // of calls of Do
	ungrouped *Group[ID, R]                    // for the table's own methods
	free      sync.Pool                        // *call, with an empty channel or none
	limit     limit.Limit                      // of calls

	// goWheel is the wheel of calls of Go. Its workers run done functions, which may block and
	// must not delay calls of Do. nil: there was no such call with a timeout yet.
	goWheel     atomic.Pointer[timingwheel.Wheel[*call[ID, R]]]
	makeGoWheel sync.Once

	// lateCounts counts events of groups whose counts have been added to closedTally.
	lateCounts struct{ unmatched, refusedClosed atomic.Uint64 }

	mu          sync.Mutex
	closed      bool            // guarded by mu
	groups      []*Group[ID, R] // guarded by mu: groups that are not closed, and ungrouped
	closedTally tally           // guarded by mu: counts of closed groups
}

// New makes a table. It costs one goroutine while no call expires. An option out of range
// is an error that names it.
func New[ID comparable, R any](o Options) (*Table[ID, R], error) {
	if o.MaxPending < 0 {
		return nil, fmt.Errorf("calls: Options.MaxPending is %d, must be 0 (no bound) or more", o.MaxPending)
	}
	if o.OnPanic == nil {
		o.OnPanic = logPanic
	}
	t := &Table[ID, R]{options: o, limit: limit.Limit{Max: int64(o.MaxPending)}}
	var err error
	if t.doWheel, err = t.newWheel(); err != nil {
		return nil, fmt.Errorf("calls: %w", err)
	}
	t.ungrouped = t.open(ungroupedParts(runtime.GOMAXPROCS(0)))
	return t, nil
}

func (t *Table[ID, R]) newWheel() (*timingwheel.Wheel[*call[ID, R]], error) {
	o := t.options
	return timingwheel.New((*call[ID, R]).expire, timingwheel.Options{Name: o.Name, Tick: o.Tick, Workers: o.Workers, OnPanic: o.OnPanic})
}

// wheel returns the wheel for a call's timer. It is called for a new call with the part's lock
// held: the part is open, so the table has not closed its wheels yet.
func (t *Table[ID, R]) wheel(c *call[ID, R]) *timingwheel.Wheel[*call[ID, R]] {
	if c.done == nil {
		return t.doWheel
	}
	t.makeGoWheel.Do(func() {
		w, _ := t.newWheel() // the options are those of doWheel, which was made
		t.goWheel.Store(w)
	})
	return t.goWheel.Load()
}

// wheels returns the wheels that were made.
func (t *Table[ID, R]) wheels() []*timingwheel.Wheel[*call[ID, R]] {
	if w := t.goWheel.Load(); w != nil {
		return []*timingwheel.Wheel[*call[ID, R]]{t.doWheel, w}
	}
	return []*timingwheel.Wheel[*call[ID, R]]{t.doWheel}
}

// Group makes a group: calls with their own ids, which can be ended together. Make one for each
// connection, and close it when the connection has closed: until then the table refers to it.
func (t *Table[ID, R]) Group() *Group[ID, R] {
	t.mustBeMade()
	return t.open(1)
}

func (t *Table[ID, R]) mustBeMade() {
	if t.ungrouped == nil {
		panic("calls: the zero Table is not usable, make one with New")
	}
}

func (t *Table[ID, R]) open(parts int) *Group[ID, R] {
	g := newGroup(t, parts)
	t.mu.Lock()
	closed := t.closed
	if !closed {
		g.index = len(t.groups)
		t.groups = append(t.groups, g)
	}
	t.mu.Unlock()
	if closed { // no other goroutine refers to g
		for i := range g.parts {
			g.parts[i].cause, g.parts[i].merged = ErrClosed, true
		}
	}
	return g
}

// Do is [Group.Do] for calls outside groups.
func (t *Table[ID, R]) Do(ctx context.Context, id ID, timeout time.Duration, send func() error) (R, error) {
	t.mustBeMade()
	return t.ungrouped.Do(ctx, id, timeout, send)
}

// Go is [Group.Go] for calls outside groups.
func (t *Table[ID, R]) Go(id ID, timeout time.Duration, send func() error, done func(R, error)) error {
	t.mustBeMade()
	return t.ungrouped.Go(id, timeout, send, done)
}

// Reply is [Group.Reply] for calls outside groups.
func (t *Table[ID, R]) Reply(id ID, reply R) bool {
	t.mustBeMade()
	return t.ungrouped.Reply(id, reply)
}

// Fail is [Group.Fail] for calls outside groups.
func (t *Table[ID, R]) Fail(id ID, err error) bool {
	t.mustBeMade()
	return t.ungrouped.Fail(id, err)
}

// All returns an iterator over the pending calls of all groups; see [Group.All].
func (t *Table[ID, R]) All() iter.Seq[Waiting[ID]] {
	t.mustBeMade()
	return func(yield func(Waiting[ID]) bool) {
		for _, g := range t.all() {
			for w := range g.All() {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// Oldest returns the n calls that have waited longest, in all groups, the oldest first, or all
// if there are fewer. It reads all calls, as All does, and takes O(log n) for each that is
// older than most before it.
func (t *Table[ID, R]) Oldest(n int) []Waiting[ID] {
	t.mustBeMade()
	if n < 1 {
		return nil
	}
	top := best.New[Waiting[ID]](n, 0)
	for w := range t.All() {
		if top.Accepts(int64(w.Age)) {
			top.Add(int64(w.Age), w)
		}
	}
	return top.Sorted()
}

// all returns the groups that are not closed, and ungrouped.
func (t *Table[ID, R]) all() []*Group[ID, R] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.groups)
}

// Close begins a shutdown and does not wait for its end. Every pending call, in all groups, and
// every later one ends with ErrClosed. Close may be called from a done function, and any number
// of times. Calls of Do end first; Close returns when the done functions that it calls itself
// have returned.
func (t *Table[ID, R]) Close() {
	t.mustBeMade()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	defer func() { // also if a done function ends this goroutine
		for _, w := range t.wheels() { // no part is open that could make the second one
			_, _ = w.Close(timingwheel.Discard) // fails only for an unknown policy
		}
	}()
	t.closeGroups(t.all(), ErrClosed)
}

// closeGroups ends the calls of groups, calls of Do first, and returns their number.
func (t *Table[ID, R]) closeGroups(groups []*Group[ID, R], err error) (n int) {
	var others []*call[ID, R]
	for _, g := range groups {
		for i := range g.parts {
			all := g.parts[i].close(err)
			n += len(all)
			for _, c := range all {
				if c.done == nil {
					c.end(*new(R), err)
				} else {
					others = append(others, c)
				}
			}
		}
		t.remove(g)
	}
	goexit.Each(others, func(c *call[ID, R]) { c.end(*new(R), err) })
	return n
}

// remove removes a group whose calls have ended, and keeps its counts.
func (t *Table[ID, R]) remove(g *Group[ID, R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.index == notListed {
		return
	}
	last := len(t.groups) - 1
	moved := t.groups[last]
	t.groups[g.index], moved.index = moved, g.index
	g.index = notListed
	t.groups[last] = nil
	t.groups = t.groups[:last]
	if n := cap(t.groups); n >= 64 && last <= n/4 {
		t.groups = append(make([]*Group[ID, R], 0, n/2), t.groups...)
	}
	for i := range g.parts {
		p := &g.parts[i]
		p.mu.Lock()
		t.closedTally.add(&p.tally) // p.tally stays: Stats may be about to add it to its old copy of closedTally
		p.merged = true
		p.mu.Unlock()
	}
}

// Shutdown calls [Table.Close] and waits until the done functions of expired calls have
// returned and no goroutine is left. Do not call it from a done function: it would wait there
// until ctx is done.
//
// When ctx is done first, Shutdown returns its error; the shutdown goes on, and another
// call waits for it again. A nil ctx panics, and changes nothing.
func (t *Table[ID, R]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("calls: the context is nil")
	}
	t.Close()
	for _, w := range t.wheels() {
		if _, err := w.Shutdown(ctx, timingwheel.Discard); err != nil {
			return err
		}
	}
	return nil
}
