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

// Group is calls that can be ended together, with ids of their own: those of a connection.
// A reply that one connection brings can thereby end no call of another, also where both
// count their calls from 1. Make one with [Table.Group]: the zero Group is not usable, and
// its methods panic. All methods are safe for use from any goroutine, done functions
// included.
type Group[ID comparable, R any] struct {
	table *Table[ID, R]
	seed  maphash.Seed
	parts []part[ID, R] // a power of two; ids are spread over them
	place int           // guarded by Table.mu: in Table.groups, or nowhere
}

const nowhere = -1

// part has some of a group's calls.
type part[ID comparable, R any] struct {
	group *Group[ID, R]

	mu    sync.Mutex
	calls map[ID]*call[ID, R] // guarded by mu
	peak  int                 // guarded by mu: the most calls since the map was made
	cause error               // guarded by mu: not nil: the group is closed, by this
	gone  bool                // guarded by mu: its counts are in Table.gone
	tally tally               // guarded by mu

	_ [64]byte // the next part's lock is in another cache line
}

// ownParts is how many parts the calls have that are in no group.
func ownParts(processors int) int {
	n := 1
	for n < 8*processors && n < 1024 {
		n *= 2
	}
	return n
}

func newGroup[ID comparable, R any](t *Table[ID, R], parts int) *Group[ID, R] {
	g := &Group[ID, R]{table: t, seed: maphash.MakeSeed(), parts: make([]part[ID, R], parts), place: nowhere}
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

// Do makes a call and waits for its reply: it notes id, calls send, which is to bring the
// request on its way, and returns what Reply is given for id. Otherwise it returns why
// there is no reply: ErrExpired after timeout, context.Cause when ctx is done, what Fail or
// Close was given, ErrClosed, or the error of send. Exactly one of these ends the call.
//
// With ErrDuplicate, ErrFull, when the group is closed, ctx done or timeout zero or less,
// send is not called. NoTimeout leaves the call to ctx. If send panics or ends its
// goroutine the call ends too.
//
// A call that ends while send runs returns when send does: send must not wait for a slow
// network for longer than the caller would. A nil ctx or send panics. Constant time, and
// nothing is allocated once the records of calls that have ended can be used again.
func (g *Group[ID, R]) Do(ctx context.Context, id ID, timeout time.Duration, send func() error) (R, error) {
	if ctx == nil || send == nil {
		panic("calls: Do with a nil context or send")
	}
	if ctx.Err() != nil {
		return *new(R), cause(ctx)
	}
	gone := ctx.Done() // before the call is noted: a context may panic
	p := g.part(id)
	c, serial, err := p.begin(id, timeout, nil)
	if err != nil {
		return *new(R), err
	}
	if err := p.send(c, id, serial, true, send); err != nil && p.take(c, id, serial, purgatory.Failed) {
		c.value, c.err = *new(R), err
	} else {
		c.await(ctx, gone)
	}
	value, err := c.value, c.err
	if c.stop() {
		g.table.recycle(c)
	}
	return value, err
}

// Go makes a call and does not wait: done is called exactly once, with the reply, or with
// the error that says why there is none, as [Group.Do] would return it. It runs on the
// goroutine that ends the call: that of Reply, Fail or Close, of Go itself if send fails,
// or a worker's when the timeout passes; see Options.Workers. Its panics are recovered and
// reported.
//
// An error of Go means that neither send nor done is called: ErrDuplicate, ErrFull, when
// the group is closed, or ErrExpired if timeout is zero or less. A nil send or done panics.
func (g *Group[ID, R]) Go(id ID, timeout time.Duration, send func() error, done func(R, error)) error {
	if send == nil || done == nil {
		panic("calls: Go with a nil send or done")
	}
	p := g.part(id)
	c, serial, err := p.begin(id, timeout, done)
	if err != nil {
		return err
	}
	// From here on c may serve another call.
	if err := p.send(c, id, serial, false, send); err != nil && p.take(c, id, serial, purgatory.Failed) {
		c.end(*new(R), err)
	}
	return nil
}

// Reply ends the call that waits for id, with the reply, and reports whether one did. If
// not, the reply is late, a second one, or to nothing that was asked; it is counted, and
// touches nothing. Constant time; it calls done if Go has made the call, and otherwise
// runs none of your code.
func (g *Group[ID, R]) Reply(id ID, reply R) bool {
	c := g.part(id).remove(id, purgatory.Completed)
	if c == nil {
		return false
	}
	c.end(reply, nil)
	return true
}

// Fail ends the call that waits for id, with an error, and reports whether one did. A nil
// err panics.
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

// CloseWithError ends all calls of the group with an error, ErrClosed if that is nil, and has those
// that come later get it too: so a call cannot be left behind that came just when its
// connection was lost. Calls of Do end first, then the done functions of the others are
// called. It returns how many calls it has ended. The group can be forgotten then. It takes
// time proportional to the calls.
func (g *Group[ID, R]) CloseWithError(err error) int {
	g.mustBeMade()
	if err == nil {
		err = ErrClosed
	}
	return g.table.closeGroups([]*Group[ID, R]{g}, err)
}

// Len returns the number of calls that wait.
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

// Waiting is a call that waits.
type Waiting[ID comparable] struct {
	ID       ID
	Age      time.Duration // since it was made
	Deadline time.Time     // with a monotonic reading; zero: none
}

// All returns an iterator over the calls that wait. Each that waits from beginning to end
// is met once; one that comes or ends meanwhile may be met or not. It takes the lock for 256
// calls at a time, which it copies; no lock is held while the loop's body runs.
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

const batch = 256 // calls that a walk looks at for one turn of the lock

// each calls yield with the calls that wait, until it returns false, and reports whether it
// did not. The room of some is used, and returned.
//
// The loop over the map goes on while others change it between two turns of the lock, which
// the language allows: what has been removed is not reached any more. But when the map is
// made anew or the part is closed, the loop stays in the old one, which nobody changes.
func (p *part[ID, R]) each(some []Waiting[ID], yield func(Waiting[ID]) bool) (room []Waiting[ID], more bool) {
	some = some[:0]
	flush := func() bool {
		for _, w := range some {
			if !yield(w) {
				return false
			}
		}
		some = some[:0]
		return true
	}
	p.mu.Lock()
	looked := 0
	wall, at := time.Now(), now()
	for id, c := range p.calls {
		if p.calls[id] == c { // not so if the loop is in an old map and c has ended
			w := Waiting[ID]{ID: id, Age: at - c.began}
			if c.deadline != never {
				w.Deadline = wall.Add(c.deadline - at)
			}
			some = append(some, w)
		}
		if looked++; looked%batch > 0 {
			continue
		}
		p.mu.Unlock()
		if !flush() {
			return some, false
		}
		p.mu.Lock()
		wall, at = time.Now(), now()
		if len(p.calls) == 0 {
			break
		}
	}
	p.mu.Unlock()
	more = flush()
	return some, more
}

// begin notes a call. An error means that it is not.
func (p *part[ID, R]) begin(id ID, timeout time.Duration, done func(R, error)) (c *call[ID, R], serial uint64, err error) {
	if id != id { //nolint:gocritic // NaN is not
		return nil, 0, errUnequal
	}
	if timeout <= 0 {
		return nil, 0, ErrExpired
	}
	t := p.group.table
	c = t.record(done)
	p.mu.Lock()
	err = p.enterLocked(c, id, timeout)
	serial = c.serial
	p.mu.Unlock()
	if err != nil {
		t.recycle(c)
		return nil, 0, err
	}
	return c, serial, nil
}

// enterLocked has a call wait. Its timer is started under the lock, so that an expiry
// cannot come before the call can be found.
func (p *part[ID, R]) enterLocked(c *call[ID, R], id ID, timeout time.Duration) error {
	t := p.group.table
	switch {
	case p.cause != nil:
		if p.gone {
			t.afterwards.refusedClosed.Add(1)
		} else {
			p.tally.refusedClosed++
		}
		return p.cause
	case p.calls[id] != nil:
		p.tally.duplicates++
		return ErrDuplicate
	case !t.reserve():
		p.tally.refusedFull++
		return ErrFull
	}
	c.part, c.id, c.began, c.deadline = p, id, now(), never
	c.serial++
	if timeout != NoTimeout && c.began <= never-timeout { // else it has no deadline before the end of time
		c.deadline = c.began + timeout // a worker may read it as soon as the timer is started
		timer, err := t.wheel.Schedule(c, timeout)
		if err != nil { // 2^28 calls: the wheel is closed after every group is
			t.unreserve()
			p.tally.refusedFull++
			return ErrFull
		}
		c.timer = timer
	}
	p.calls[id] = c
	p.peak = max(p.peak, len(p.calls))
	return nil
}

// send calls send. If that panics or ends its goroutine, the call ends first, unless it has
// ended. ofDo says which call it is: a record of Go may serve another one by then.
func (p *part[ID, R]) send(c *call[ID, R], id ID, serial uint64, ofDo bool, send func() error) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		taken := p.take(c, id, serial, purgatory.Failed)
		switch {
		case ofDo:
			// The record does not serve again: who has ended the call may still use it.
			c.stop()
		case taken:
			c.end(*new(R), errSend)
		}
	}()
	err := send()
	returned = true
	return err
}

// take ends the waiting of a call, unless it has ended, and reports whether it did so.
func (p *part[ID, R]) take(c *call[ID, R], id ID, serial uint64, o purgatory.Outcome) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[id] != c || c.serial != serial {
		return false
	}
	p.removeLocked(c, o)
	return true
}

// remove ends the waiting of the call with an id, and returns it; nil: there is none.
func (p *part[ID, R]) remove(id ID, o purgatory.Outcome) *call[ID, R] {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	if c == nil {
		if p.gone {
			p.group.table.afterwards.unmatched.Add(1)
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
	p.tally.end(o, now-c.began)
	if o == purgatory.Expired {
		p.tally.expired(now - c.deadline)
	}
	if len(p.calls) < p.peak/shrinkAt && p.peak >= shrinkFrom {
		p.shrinkLocked()
	}
	p.group.table.unreserve()
	c.outcome = o
}

const (
	shrinkFrom = 1024
	shrinkAt   = 8
)

// shrinkLocked makes the map anew, as Go's maps do not shrink: after at least seven calls
// have left for each that is moved. All are moved at once. Moving some at each call would
// take a second map, which each call looks into, and a loop that can be left and resumed.
func (p *part[ID, R]) shrinkLocked() {
	smaller := make(map[ID]*call[ID, R], len(p.calls))
	for id, c := range p.calls {
		smaller[id] = c
	}
	p.calls, p.peak = smaller, len(smaller)
}

// close refuses calls from now on and ends the waiting of those there are, which it returns.
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
		p.tally.end(outcome, now()-c.began)
		p.group.table.unreserve()
		c.outcome = outcome
	}
	return all
}
