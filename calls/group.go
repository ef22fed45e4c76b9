package calls

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// Group is a set of calls with their own ids that can be ended together, such as those of a
// connection. So a reply on one connection cannot end a call of another, even if both count
// their calls from 1. Make one with [Table.Group]: the zero Group is not usable, and its
// methods panic. All methods are safe for use from any goroutine, done functions included.
type Group[ID comparable, R any] struct {
	table *Table[ID, R]
	seed  maphash.Seed
	parts []part[ID, R] // a power of two; ids are spread over them
	index int           // guarded by Table.mu: in Table.groups, or notListed
}

const notListed = -1

// part holds some of a group's calls.
type part[ID comparable, R any] struct {
	group *Group[ID, R]

	mu     sync.Mutex
	calls  map[ID]*call[ID, R] // guarded by mu
	peak   int                 // guarded by mu: the maximum of calls since the map was made
	cause  error               // guarded by mu: the error that closed the group; nil: not closed
	merged bool                // guarded by mu: its counts are in Table.closedTally
	tally  tally               // guarded by mu

	_ [64]byte // the next part's lock is in another cache line
}

// ungroupedParts returns the number of parts for calls outside groups.
func ungroupedParts(processors int) int {
	n := 1
	for n < 8*processors && n < 1024 {
		n *= 2
	}
	return n
}

func newGroup[ID comparable, R any](t *Table[ID, R], parts int) *Group[ID, R] {
	g := &Group[ID, R]{table: t, seed: maphash.MakeSeed(), parts: make([]part[ID, R], parts), index: notListed}
	for i := range g.parts {
		g.parts[i].group = g
		g.parts[i].calls = map[ID]*call[ID, R]{}
	}
	return g
}

func (g *Group[ID, R]) part(id ID) *part[ID, R] {
	if len(g.parts) == 1 {
		return &g.parts[0]
	}
	g.mustBeMade()
	return &g.parts[maphash.Comparable(g.seed, id)&uint64(len(g.parts)-1)]
}

func (g *Group[ID, R]) mustBeMade() {
	if g.table == nil {
		panic("calls: the zero Group is not usable, make one with Table.Group")
	}
}

// Do makes a call and waits for its reply: it registers id, calls send, which should send the
// request, and returns the reply that Reply receives for id. Otherwise it returns the reason:
// ErrExpired after timeout, context.Cause when ctx is done, the error given to Fail or
// CloseWithError, ErrClosed, or the error of send. Exactly one of these ends the call.
//
// Do does not call send if the error is ErrDuplicate or ErrFull, the group is closed, ctx is
// done or timeout is zero or less. With NoTimeout only ctx limits the call. If send panics or
// ends its goroutine the call ends too.
//
// A call that ends while send runs returns when send does: send must not wait for a slow
// network for longer than the caller would. A nil ctx or send panics. Do takes constant time,
// and allocates nothing once the records of ended calls can be used again.
func (g *Group[ID, R]) Do(ctx context.Context, id ID, timeout time.Duration, send func() error) (R, error) {
	if ctx == nil || send == nil {
		panic("calls: Do with a nil context or send")
	}
	if ctx.Err() != nil {
		return *new(R), cause(ctx)
	}
	ctxDone := ctx.Done() // before the call is registered: a context may panic
	h, err := g.part(id).begin(id, timeout, nil)
	if err != nil {
		return *new(R), err
	}
	c, returned := h.record, false // this goroutine frees the record
	defer func() {
		// If send or ctx has not returned, another goroutine may still be ending the call: the
		// record is not freed.
		if c.stop() && returned {
			g.table.recycle(c)
		}
	}()
	h.send(send)
	h.await(ctx, ctxDone)
	returned = true
	return c.value, c.err
}

// Go makes a call and does not wait: it calls done exactly once, with the reply, or with the
// error that [Group.Do] would return. done runs on the goroutine that ends the call: the caller
// of Reply, Fail, CloseWithError or [Table.Close], of Go itself if send fails, or a worker when
// the timeout passes; see Options.Workers. Panics of done are recovered and reported.
//
// An error of Go means that neither send nor done is called: ErrDuplicate, ErrFull, the error
// of a closed group, or ErrExpired if timeout is zero or less. A nil send or done panics.
func (g *Group[ID, R]) Go(id ID, timeout time.Duration, send func() error, done func(R, error)) error {
	if send == nil || done == nil {
		panic("calls: Go with a nil send or done")
	}
	h, err := g.part(id).begin(id, timeout, done)
	if err != nil {
		return err
	}
	h.send(send)
	return nil
}

// Reply ends the pending call with this id, with the reply, and reports whether there was one.
// Otherwise the reply is late, a duplicate, or unsolicited: Reply counts it and does nothing
// else. It takes constant time. It calls done for a call of Go, and otherwise runs none of your
// code.
func (g *Group[ID, R]) Reply(id ID, reply R) bool {
	c := g.part(id).remove(id, purgatory.Completed)
	if c == nil {
		return false
	}
	c.end(reply, nil)
	return true
}

// Fail ends the pending call with this id, with an error, and reports whether there was one. A
// nil err panics.
func (g *Group[ID, R]) Fail(id ID, err error) bool {
	if err == nil {
		panic("calls: Fail with a nil error")
	}
	c := g.part(id).remove(id, purgatory.Failed)
	if c == nil {
		return false
	}
	c.end(*new(R), err)
	return true
}

// CloseWithError ends all calls of the group with an error, ErrClosed if err is nil. Later
// calls get the same error, so a call that races with the loss of its connection cannot be left
// behind. It ends calls of Do first, then calls the done functions of the others, and returns
// how many calls it has ended. Afterwards the group can be dropped. It takes time proportional
// to the number of calls.
func (g *Group[ID, R]) CloseWithError(err error) int {
	g.mustBeMade()
	if err == nil {
		err = ErrClosed
	}
	return g.table.closeGroups([]*Group[ID, R]{g}, err)
}

// Len returns the number of pending calls.
func (g *Group[ID, R]) Len() (n int) {
	g.mustBeMade()
	for i := range g.parts {
		p := &g.parts[i]
		p.mu.Lock()
		n += len(p.calls)
		p.mu.Unlock()
	}
	return n
}

// Waiting is a pending call.
type Waiting[ID comparable] struct {
	ID       ID
	Age      time.Duration // since it was made
	Deadline time.Time     // with a monotonic reading; zero: none
}

// All returns an iterator over the pending calls. It yields each call that is pending from
// beginning to end exactly once; calls that begin or end during the iteration may be missing.
// It copies 256 calls at a time under the lock; no lock is held while the loop's body runs.
func (g *Group[ID, R]) All() iter.Seq[Waiting[ID]] {
	g.mustBeMade()
	return func(yield func(Waiting[ID]) bool) {
		var some []Waiting[ID]
		for i := range g.parts {
			var more bool
			if some, more = g.parts[i].each(some, yield); !more {
				return
			}
		}
	}
}

const batch = 256 // calls that a walk reads while it holds the lock once

// each calls yield with the pending calls until it returns false, and reports whether it never
// did. It uses the memory of some, and returns it.
//
// Between two batches others may change the map during the loop, which the language allows:
// removed calls are not reached. When the map is replaced or the part is closed, the loop stays
// in the old map, which does not change any more.
func (p *part[ID, R]) each(buf []Waiting[ID], yield func(Waiting[ID]) bool) (reused []Waiting[ID], more bool) {
	buf = buf[:0]
	flush := func() bool {
		for _, w := range buf {
			if !yield(w) {
				return false
			}
		}
		buf = buf[:0]
		return true
	}
	p.mu.Lock()
	read := 0
	wall, at := time.Now(), now()
	for id, c := range p.calls {
		if p.calls[id] == c { // false if the loop is in an old map and c has ended
			w := Waiting[ID]{ID: id, Age: at - c.began}
			if c.deadline != never {
				w.Deadline = wall.Add(c.deadline - at)
			}
			buf = append(buf, w)
		}
		if read++; read%batch > 0 {
			continue
		}
		p.mu.Unlock()
		if !flush() {
			return buf, false
		}
		p.mu.Lock()
		wall, at = time.Now(), now()
		if len(p.calls) == 0 {
			break
		}
	}
	p.mu.Unlock()
	more = flush()
	return buf, more
}

// begin registers a call. On an error the call is not registered.
func (p *part[ID, R]) begin(id ID, timeout time.Duration, done func(R, error)) (h handle[ID, R], err error) {
	if id != id { //nolint:gocritic // NaN is not
		return h, errUnequal
	}
	if timeout <= 0 {
		return h, ErrExpired
	}
	t := p.group.table
	c := t.record(done)
	p.mu.Lock()
	err = p.enterLocked(c, id, timeout)
	h = c.handle()
	p.mu.Unlock()
	if err != nil {
		t.recycle(c)
	}
	return h, err
}

// enterLocked makes a call pending. It starts the timer under the lock, so that an expiry
// cannot precede the call's entry in the map.
func (p *part[ID, R]) enterLocked(c *call[ID, R], id ID, timeout time.Duration) error {
	t := p.group.table
	switch {
	case p.cause != nil:
		if p.merged {
			t.lateCounts.refusedClosed.Add(1)
		} else {
			p.tally.refusedClosed++
		}
		return p.cause
	case p.calls[id] != nil:
		p.tally.duplicates++
		return ErrDuplicate
	case !t.limit.Reserve():
		p.tally.refusedFull++
		return ErrFull
	}
	c.part, c.id, c.began, c.deadline = p, id, now(), never
	c.serial++
	if timeout != NoTimeout && c.began <= never-timeout { // otherwise the deadline would overflow
		c.deadline = c.began + timeout // set before the timer starts: then a worker may read it
		timer, err := t.wheel(c).Schedule(c, timeout)
		if err != nil { // 2^28 calls; not a closed wheel: groups close before it
			t.limit.Release(1)
			p.tally.refusedFull++
			return ErrFull
		}
		c.timer = timer
	}
	p.calls[id] = c
	p.peak = max(p.peak, len(p.calls))
	return nil
}

// remove removes the pending call with an id and returns it, or nil if there is none.
func (p *part[ID, R]) remove(id ID, o purgatory.Outcome) *call[ID, R] {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	if c == nil {
		if p.merged {
			p.group.table.lateCounts.unmatched.Add(1)
		} else {
			p.tally.unmatched++
		}
		return nil
	}
	p.removeLocked(c, o)
	return c
}

func (p *part[ID, R]) removeLocked(c *call[ID, R], o purgatory.Outcome) {
	delete(p.calls, c.id)
	now := now()
	p.tally.countOutcome(o, now-c.began)
	if o == purgatory.Expired {
		p.tally.countLate(now - c.deadline)
	}
	if len(p.calls) < p.peak/shrinkAt && p.peak >= shrinkFrom {
		p.shrinkLocked()
	}
	p.group.table.limit.Release(1)
	c.outcome = o
}

const (
	shrinkFrom = 1024
	shrinkAt   = 8
)

// shrinkLocked replaces the map, as Go's maps do not shrink, after at least seven calls have
// left for each that is moved. It moves all calls at once. Moving some at each call would take
// a second map, which each call reads, and a loop that can be paused and resumed.
func (p *part[ID, R]) shrinkLocked() {
	smaller := make(map[ID]*call[ID, R], len(p.calls))
	for id, c := range p.calls {
		smaller[id] = c
	}
	p.calls, p.peak = smaller, len(smaller)
}

// close refuses further calls, and removes and returns the pending ones.
func (p *part[ID, R]) close(err error) map[ID]*call[ID, R] {
	outcome := purgatory.Failed
	if errors.Is(err, ErrClosed) {
		outcome = purgatory.Closed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = err
	}
	all := p.calls
	p.calls = map[ID]*call[ID, R]{}
	for _, c := range all {
		p.tally.countOutcome(outcome, now()-c.began)
		p.group.table.limit.Release(1)
		c.outcome = outcome
	}
	return all
}
