package durable

import (
	"cmp"
	"container/heap"
	"context"
	"iter"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Query selects the timers that [Timers.List] lists.
type Query struct {
	State State // Waiting, which is the default, Leased or Dead
	After Cursor
	Filter
	// Scanned, if not nil, is called after each call to the engine with the position up to which
	// List has scanned all timers; if the timer at that position matches, it comes next. A loop
	// that ended early can continue from there, or from the last timer, whichever is later. It is
	// called on the iterating goroutine.
	Scanned func(Cursor)
}

// Check returns an error that names the field that is out of range.
func (q Query) Check() error {
	s := q.stored()
	return s.Check()
}

func (q Query) stored() store.Query {
	return store.Query{State: cmp.Or(q.State, Waiting), After: q.After, Limit: store.MaxItems, Filter: q.Filter}
}

// List returns an iterator over the timers of all shards in one state that come after a cursor,
// without their bodies: waiting ones by due time, leased ones by the end of the lease, dead
// letters by time of death; then by key. The zero Cursor comes before all timers. List reads pages
// on demand, and larger ones as it goes on: a loop that ends early reads little, and a loop over a
// million timers buffers at most a few thousand. The result is not a snapshot: a timer that is
// added, moved or removed during the loop may or may not be seen, and a timer that is moved to a
// later time may be seen twice.
//
// With a Filter each call to the engine scans 1,000 timers of a shard, and List makes as many
// calls as it takes to fill a page; the embedded engine finds a rare Prefix without scanning other
// keys. An error comes as the last pair, with a zero Info. With the first leased timer List asks
// the engine for the workers, as Get does.
func (t *Timers) List(ctx context.Context, q Query) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		query := q.stored()
		if err := query.Check(); err != nil {
			yield(Info{}, err)
			return
		}
		read := func(ctx context.Context, shard int, after store.Cursor, limit int) (store.Page, error) {
			query.After, query.Limit = after, limit
			return t.store.List(ctx, shard, query)
		}
		names := workerNames{timers: t}
		for r, err := range t.merged(ctx, q.After, read, func(r store.Record) store.Millis { return r.At() }, q.Scanned) {
			if err != nil {
				yield(Info{}, err)
				return
			}
			info := infoOf(r)
			info.Worker = names.of(ctx, r)
			if !yield(info, nil) {
				return
			}
		}
	}
}

// pageReader reads a page of a shard, by one call to the engine.
type pageReader func(ctx context.Context, shard int, after store.Cursor, limit int) (store.Page, error)

// The first page of each shard is small, because many loops end early. Each further page has
// pageGrowth times as many records, up to maxPage or the shard's share of maxRead, which bounds
// memory.
const (
	firstPage  = 16
	pageGrowth = 4
	minPage    = 8 // with very many shards
	maxPage    = 256
	maxRead    = 4096 // of all shards together
)

// merged merges the records after a cursor that read returns for each shard, ordered by at. It
// reads a shard only as far as needed to know which record is next. After each read it calls
// scanned with the position up to which all timers have been scanned.
func (t *Timers) merged(
	ctx context.Context, after Cursor, read pageReader, at func(store.Record) store.Millis, scanned func(Cursor),
) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		m := merge{at: at}
		largest := min(max(maxRead/len(t.schedules), minPage), maxPage)
		for shard := range t.schedules {
			m.pages = append(m.pages, &page{shard: shard, after: after, limit: min(firstPage, largest)})
		}
		fill := func(p *page) error {
			ctx, cancel, err := t.begin(ctx)
			if err != nil {
				return err
			}
			defer cancel()
			got, err := read(ctx, p.shard, p.after, p.limit)
			p.rest, p.after, p.last = got.Records, got.Next, !got.More
			if len(p.rest) > 0 {
				p.limit = min(p.limit*pageGrowth, largest)
			}
			return err
		}
		heap.Init(&m)
		for len(m.pages) > 0 {
			p := m.pages[0]
			switch {
			case len(p.rest) > 0:
				r := p.rest[0]
				p.rest = p.rest[1:]
				if !yield(r, nil) {
					return
				}
				heap.Fix(&m, 0)
			case p.last:
				heap.Pop(&m)
			default:
				if err := fill(p); err != nil {
					yield(store.Record{}, err)
					return
				}
				heap.Fix(&m, 0)
				if scanned != nil {
					scanned(m.position(m.pages[0]))
				}
			}
		}
	}
}

// page is the progress of a merge in one shard.
type page struct {
	shard int
	rest  []store.Record // read and not yet passed on
	after store.Cursor   // of the next read
	last  bool           // nothing comes after rest
	limit int            // of the next read
}

// merge is a heap of pages, ordered by position.
type merge struct {
	pages []*page
	at    func(store.Record) store.Millis
}

// position returns the position of the next record of a page, or one that the record comes after.
func (m *merge) position(p *page) Cursor {
	if len(p.rest) > 0 {
		return Cursor{At: m.at(p.rest[0]), Key: p.rest[0].Key}
	}
	return p.after
}

func (m *merge) Len() int      { return len(m.pages) }
func (m *merge) Swap(i, j int) { m.pages[i], m.pages[j] = m.pages[j], m.pages[i] }
func (m *merge) Less(i, j int) bool {
	a, b := m.position(m.pages[i]), m.position(m.pages[j])
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key)) < 0
}
func (m *merge) Push(any) { panic("durable: a merge does not grow") }
func (m *merge) Pop() any {
	last := m.pages[len(m.pages)-1]
	m.pages = m.pages[:len(m.pages)-1]
	return last
}
