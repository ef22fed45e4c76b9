package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Timer is a timer to schedule.
type Timer struct {
	// Key names it: 1 to 512 bytes of any kind but zero bytes. A key has one timer at a time; see
	// Schedule.
	Key string
	// Topic distinguishes kinds of timers, for handlers, and so that the many of one
	// topic do not keep another's waiting. At most 128 bytes of any kind.
	Topic string
	// Body is for the handler: at most 64 KiB of any kind. It is copied.
	Body []byte
	// At is when it is due, by the engine's clock, rounded up to milliseconds: 1970
	// to 2262. What is past is due at once, in order of these times. The zero time
	// leaves it to After.
	At time.Time
	// After is when it is due, counted from when the engine gets it, rounded up to
	// milliseconds. Zero or less is at once. Unlike At, it does not depend on how
	// this machine's clock differs from the engine's.
	After time.Duration
	// IfAbsent refuses a key that has a timer, waiting, leased or dead.
	IfAbsent bool
}

func (m Timer) entry() (store.Entry, error) {
	e := store.Entry{
		Key: m.Key, ID: store.NewID(), Topic: m.Topic, Body: m.Body,
		After: m.After, IfAbsent: m.IfAbsent,
	}
	if err := e.Check(); err != nil { // before the body is copied
		return e, err
	}
	if i := strings.IndexByte(m.Key, 0); i >= 0 {
		return e, fmt.Errorf("durable: byte %d of the timer's key %.64q is zero, must not be", i, m.Key)
	}
	if !m.At.IsZero() {
		if m.After != 0 {
			return e, fmt.Errorf("durable: timer %.64q has both At, %v, and After, %v, must have one", m.Key, m.At, m.After)
		}
		at, err := millisOf(m.Key, m.At)
		if err != nil {
			return e, err
		}
		e.At = at
	}
	e.Body = bytes.Clone(m.Body)
	return e, nil
}

// millisOf turns a due time into the engines' form, in which 0 is none.
func millisOf(key string, at time.Time) (store.Millis, error) {
	if at.Before(time.UnixMilli(0)) || at.After(store.MaxMillis.Time()) {
		return 0, fmt.Errorf("durable: timer %.64q is due at %v, must be at %v to %v", key, at, time.UnixMilli(0).UTC(), store.MaxMillis.Time())
	}
	return max(store.MillisAt(at), 1), nil
}

// Schedule adds a timer. Its handler is called once the engine's clock has come to
// its time, never before, by any worker.
//
// A key has one timer at a time. One that waits, for its first attempt or another,
// is replaced, and so is a dead letter; attempts begin at 0. One that is leased, for
// it runs, keeps running: the new one is its successor, waits when that run ends,
// however it ends, and never runs beside it. Another Schedule replaces the
// successor. So a handler that schedules its own key recurs. The receipt's Kind is
// which of these it was.
//
// The errors are one that names the field, its value and its bound; [ErrFull], with
// nothing changed; [ErrClosed]; [ErrUnsure], when the engine has not answered, or
// ctx ended, after the request was sent: the timer may be there or not, and who
// schedules it again replaces it, unless it has run already. After ctx has ended the
// request goes on, for Options.CallTimeout at most; later calls of these Timers about
// the key take effect after it. [ErrUnconfirmed] comes with a receipt:
// the timer is there, and fewer replicas than asked for have it.
//
// Concurrent calls are joined into one request for each shard, of up to 500 timers
// and 1 MiB of bodies.
func (t *Timers) Schedule(ctx context.Context, timer Timer) (Receipt, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return Receipt{}, err
	}
	defer cancel()
	e, err := timer.entry()
	if err != nil {
		return Receipt{}, err
	}
	shard := t.shardOf(e.Key)
	j := t.schedules[shard]
	c := newJoined[store.Entry, store.Receipt](len(e.Body), e)
	if err := j.send(c); err != nil {
		return Receipt{}, err
	}
	receipts, err := j.wait(ctx, c)
	if len(receipts) == 0 {
		return Receipt{}, err
	}
	if err == nil && receipts[0].Kind == store.Refused {
		err = ErrFull
	}
	return receipts[0], err
}

// ScheduleMany is Schedule for many timers: each is added or not, not all of them
// together; those of one shard in order, so that a key may stand there twice. The
// shards are asked at the same time.
//
// If any timer is out of bounds nothing is sent. Otherwise there is a receipt for
// each timer, in order; its Kind is 0 if the timer was not added, or if that is not
// known, and Refused if the store was full. The error then is what went wrong, the
// errors of Schedule, with the number of timers that it is about.
func (t *Timers) ScheduleMany(ctx context.Context, timers []Timer) ([]Receipt, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if len(timers) == 0 {
		return nil, nil
	}
	type part struct {
		*joined[store.Entry, store.Receipt]
		places []int // of its entries in timers
	}
	byShard := make(map[int][]part)
	for i, timer := range timers {
		e, err := timer.entry()
		if err != nil {
			return nil, err
		}
		shard := t.shardOf(e.Key)
		parts := byShard[shard]
		if n := len(parts); n == 0 || len(parts[n-1].items) == store.MaxItems || parts[n-1].bytes+len(e.Body) > maxRequest {
			parts = append(parts, part{joined: newJoined[store.Entry, store.Receipt](0)})
		}
		p := &parts[len(parts)-1]
		p.items, p.bytes, p.places = append(p.items, e), p.bytes+len(e.Body), append(p.places, i)
		byShard[shard] = parts
	}
	failed := failures{of: len(timers)}
	for shard, parts := range byShard {
		calls := make([]*joined[store.Entry, store.Receipt], len(parts))
		for i, p := range parts {
			calls[i] = p.joined
		}
		if err := t.schedules[shard].send(calls...); err != nil {
			for _, p := range parts {
				failed.add(len(p.places), err)
			}
			delete(byShard, shard)
		}
	}
	all := make([]Receipt, len(timers))
	for shard, parts := range byShard {
		for _, p := range parts {
			receipts, err := t.schedules[shard].wait(ctx, p.joined)
			if err != nil {
				failed.add(len(p.places), err)
			}
			for i, r := range receipts {
				all[p.places[i]] = r
				if r.Kind == store.Refused && err == nil {
					failed.add(1, ErrFull)
				}
			}
		}
	}
	return all, failed.err()
}

// failures gathers what went wrong with the shards of one call: often the same with
// all of them.
type failures struct {
	of     int // items of the call
	errs   []error
	counts []int
}

func (f *failures) add(items int, err error) {
	for i, e := range f.errs {
		if e.Error() == err.Error() {
			f.counts[i] += items
			return
		}
	}
	f.errs, f.counts = append(f.errs, err), append(f.counts, items)
}

func (f *failures) err() error {
	all := make([]error, len(f.errs))
	for i, err := range f.errs {
		all[i] = fmt.Errorf("%d of %d timers: %w", f.counts[i], f.of, err)
	}
	return errors.Join(all...)
}
