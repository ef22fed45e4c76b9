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
	// Key names it: 1 to 512 bytes of any value but zero. A key has one timer at a time; see
	// Schedule.
	Key string
	// Topic is the kind of a timer: handlers can distinguish by it, and a topic with many timers
	// does not starve others. At most 128 bytes of any value.
	Topic string
	// Body is for the handler: at most 64 KiB of any value. It is copied.
	Body []byte
	// At is the due time, by the engine's clock, rounded up to milliseconds: 1970 to 2262. A time
	// in the past is due at once, in order of these times. If it is zero, After applies.
	At time.Time
	// After is the delay from when the engine receives the timer, rounded up to milliseconds. Zero
	// or less is due at once. Unlike At, it does not depend on the difference between this
	// machine's clock and the engine's.
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

// millisOf converts a due time to the engines' form, in which 0 is none.
func millisOf(key string, at time.Time) (store.Millis, error) {
	if at.Before(time.UnixMilli(0)) || at.After(store.MaxMillis.Time()) {
		return 0, fmt.Errorf("durable: timer %.64q is due at %v, must be at %v to %v", key, at, time.UnixMilli(0).UTC(), store.MaxMillis.Time())
	}
	return max(store.MillisAt(at), 1), nil
}

// Schedule adds a timer. Any worker calls its handler once the engine's clock has reached the due
// time, never earlier.
//
// A key has one timer at a time. A waiting timer, for its first or a later attempt, is replaced,
// and so is a dead letter; the new timer starts with no attempts. A leased timer keeps running:
// the new timer is its successor, waits when that run ends, however it ends, and never overlaps
// with it. Another Schedule replaces the successor. So a handler that schedules its own key
// recurs. The receipt's Kind tells which case applied.
//
// Schedule returns these errors: one that names the field, its value and its bound; [ErrFull],
// with nothing changed; [ErrClosed]; and [ErrUnsure], if the engine has not answered, or ctx
// ended, after the request was sent. After ErrUnsure the timer may exist or not; scheduling it
// again replaces it, unless it has run already. After ctx has ended the request continues for at
// most Options.CallTimeout; later calls of these Timers about the key take effect after it.
// [ErrUnconfirmed] comes with a receipt: the timer exists, on fewer replicas than asked for.
//
// Concurrent calls are joined into one request for each shard, of up to 500 timers and 1 MiB of
// bodies.
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

// ScheduleMany is Schedule for many timers. It is not atomic: each timer is added or not. Timers
// of one shard are added in order, so that a key may occur twice. The shards are called
// concurrently.
//
// If any timer is out of bounds nothing is sent. Otherwise there is a receipt for each timer, in
// order; its Kind is 0 if the timer was not added, or if that is unknown, and Refused if the store
// was full. The error then joins the errors of Schedule, each with the number of timers that it
// concerns.
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
		indexes []int // of its entries in timers
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
		p.items, p.bytes, p.indexes = append(p.items, e), p.bytes+len(e.Body), append(p.indexes, i)
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
				failed.add(len(p.indexes), err)
			}
			delete(byShard, shard)
		}
	}
	all := make([]Receipt, len(timers))
	for shard, parts := range byShard {
		for _, p := range parts {
			receipts, err := t.schedules[shard].wait(ctx, p.joined)
			if err != nil {
				failed.add(len(p.indexes), err)
			}
			for i, r := range receipts {
				all[p.indexes[i]] = r
				if r.Kind == store.Refused && err == nil {
					failed.add(1, ErrFull)
				}
			}
		}
	}
	return all, failed.err()
}

// failures gathers the errors of one call's shards, which are often the same for all.
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
