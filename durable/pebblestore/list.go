package pebblestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// List returns a page of timers; see [store.Store]. If at most store.MaxScan keys of the shard have
// the query's prefix, it reads only these.
func (s *Store) List(ctx context.Context, n int, q store.Query) (store.Page, error) {
	if err := q.Check(); err != nil {
		return store.Page{}, err
	}
	page, _, err := call(ctx, s, n, reads, func(c *change) (*store.Page, error) {
		if q.State == store.Leased {
			return c.sh.leases.page(q), nil
		}
		page := new(store.Page)
		v := c.sh.view(q)
		c.then = func() (err error) {
			*page, err = v.list(ctx)
			if closed := v.snapshot.Close(); err == nil {
				err = closed
			}
			return err
		}
		return page, nil
	})
	if err != nil {
		return store.Page{}, err
	}
	return *page, nil
}

// page returns a page of the leased timers, all of which are in memory.
func (ls *leases) page(q store.Query) *store.Page {
	var rest []store.Record
	for _, l := range ls.byEnd {
		if r := l.record(); comesAfter(&r, q.After) {
			rest = append(rest, r)
		}
	}
	slices.SortFunc(rest, byTime)
	p := pageOf(q)
	for i := range rest {
		if !p.add(&rest[i]) {
			break
		}
	}
	return &p.Page
}

// comesAfter reports whether a record comes after a cursor.
func comesAfter(r *store.Record, c store.Cursor) bool {
	return cmp.Or(cmp.Compare(r.At(), c.At), cmp.Compare(r.Key, c.Key)) > 0
}

func byTime(a, b store.Record) int {
	return cmp.Or(cmp.Compare(a.At(), b.At()), cmp.Compare(a.Key, b.Key))
}

// page is a page that is being filled.
type page struct {
	store.Page
	store.Query
	budget int // how many records may still be examined
}

func pageOf(q store.Query) *page { return &page{store.Page{Next: q.After}, q, q.ScanLimit()} }

// add examines the next record, and keeps it if it matches. If this page is full, add reports false
// and leaves the record for another page.
func (p *page) add(r *store.Record) bool {
	if !p.examine(store.Cursor{At: r.At(), Key: r.Key}) {
		return false
	}
	if p.Matches(r.Key, r.Topic, r.LastError) {
		p.Records = append(p.Records, *r)
	}
	return true
}

// examine is add for a record that need not be read, because its position shows that it does not
// match.
func (p *page) examine(at store.Cursor) bool {
	if p.budget == 0 || len(p.Records) == p.Limit {
		p.More = true
		return false
	}
	p.budget--
	p.Next = at
	return true
}

// view is a shard at one moment, for reading a page.
type view struct {
	store.Query
	shard    int
	spans    []span
	leased   map[string]bool // keys with the prefix, if there is one
	snapshot *pebble.Snapshot
}

// span is a range of keys, each a prefix and a position: those whose position is not before from.
type span struct{ prefix, from []byte }

func (sh *shard) view(q store.Query) *view {
	v := &view{Query: q, shard: sh.index, snapshot: sh.db.NewSnapshot()}
	if q.State == store.Dead {
		v.spans = []span{{prefix(nil, sh.index, kindDead), appendPosition(nil, 0, "")}}
	} else {
		for i := range store.Lanes {
			if ln := &sh.lanes[i]; ln.count > 0 {
				v.spans = append(v.spans, span{lanePrefix(nil, sh.index, i), slices.Clone(ln.front)})
			}
		}
	}
	if q.Prefix != "" {
		v.leased = map[string]bool{}
		for key := range sh.leases.byKey {
			if strings.HasPrefix(key, q.Prefix) {
				v.leased[key] = true
			}
		}
	}
	return v
}

func (v *view) list(ctx context.Context) (store.Page, error) {
	if v.Prefix != "" {
		if page, few, err := v.byKey(ctx); few || err != nil {
			return page, err
		}
	}
	return v.byPosition(ctx)
}

// byKey lists the timers whose keys have the prefix, in order of their times. It reports false if
// there are too many to read.
func (v *view) byKey(ctx context.Context) (_ store.Page, few bool, err error) {
	lower := timerKey(nil, v.shard, kindRecord, v.Prefix)
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(lower)})
	if err != nil {
		return store.Page{}, false, fmt.Errorf("durable: reading shard %d: %w", v.shard, err)
	}
	defer func() { err = closeAll([]*pebble.Iterator{it}, err) }()
	skip := len(lower) - len(v.Prefix)
	var rest []store.Record
	scanned := 0
	for it.First(); it.Valid(); it.Next() {
		if scanned++; scanned > store.MaxScan {
			return store.Page{}, false, nil
		}
		if err := ctx.Err(); err != nil {
			return store.Page{}, false, context.Cause(ctx)
		}
		key := string(it.Key()[skip:])
		if v.leased[key] || store.IsPlan(key) {
			continue
		}
		t, err := decodeTimer(key, it.Value())
		if err != nil {
			return store.Page{}, false, fmt.Errorf("durable: shard %d, timer %q: %w", v.shard, key, err)
		}
		if r := t.record(); r.State == v.State && comesAfter(&r, v.After) {
			rest = append(rest, r)
		}
	}
	slices.SortFunc(rest, byTime)
	p := pageOf(v.Query)
	for i := range rest {
		if !p.add(&rest[i]) {
			break
		}
	}
	return p.Page, true, nil
}

// byPosition merges the spans from the cursor on.
func (v *view) byPosition(ctx context.Context) (_ store.Page, err error) {
	begin := appendPosition(nil, v.After.At, v.After.Key)
	if v.After != (store.Cursor{}) {
		begin = append(begin, 0) // the first position after it
	}
	m, err := v.merge(begin)
	defer func() { err = closeAll(m.its, err) }()
	if err != nil {
		return store.Page{}, err
	}
	p := pageOf(v.Query)
	for ctx.Err() == nil {
		pos := m.first()
		if pos == nil {
			break
		}
		key := positionKey(pos)
		if !p.examine(store.Cursor{At: positionTime(pos), Key: key}) {
			break
		}
		if strings.HasPrefix(key, v.Prefix) {
			t, err := readTimer(v.snapshot, v.shard, kindRecord, key)
			if err != nil {
				return store.Page{}, err
			}
			if t != nil && p.Matches(key, t.topic, t.lastError) {
				p.Records = append(p.Records, t.record())
			}
		}
		m.next()
	}
	return p.Page, context.Cause(ctx)
}

// merge iterates over the positions of a view's spans, in order.
type merge struct {
	spans []span
	its   []*pebble.Iterator // one for each span; the caller closes them
	at    int                // the iterator at the first position
}

// merge begins at a position. The caller closes the iterators even after an error.
func (v *view) merge(begin []byte) (m merge, err error) {
	m.spans = v.spans
	for _, s := range v.spans {
		from := s.from
		if string(from) < string(begin) {
			from = begin
		}
		it, err := v.snapshot.NewIter(&pebble.IterOptions{
			LowerBound: slices.Concat(s.prefix, from), UpperBound: after(s.prefix),
		})
		if err != nil {
			return m, fmt.Errorf("durable: reading shard %d: %w", v.shard, err)
		}
		m.its = append(m.its, it)
		it.First()
	}
	return m, nil
}

// first returns the first remaining position, or nil. It is valid until next.
func (m *merge) first() (first []byte) {
	for i, it := range m.its {
		if it.Valid() {
			if p := positionOf(it, len(m.spans[i].prefix)); first == nil || string(p) < string(first) {
				m.at, first = i, p
			}
		}
	}
	return first
}

// next removes the position that first returned.
func (m *merge) next() { m.its[m.at].Next() }
