package durable

import (
	"cmp"
	"container/heap"
	"context"
	"iter"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Scan returns an iterator over the waiting timers of all shards that come after a cursor,
// by due time and then key; without their bodies. The zero Cursor comes before all timers. It
// reads pages as it goes, and larger ones as it goes on: a loop that ends early has read
// little, and one over a million timers keeps a few thousand of them at most. It is not of one
// moment: a timer that is added, moved or removed during the loop is seen or not, and one that
// is moved to later may be seen twice.
//
// An error comes as the last pair, with a zero Info.
func (t *Timers) Scan(ctx context.Context, after Cursor) iter.Seq2[Info, error] {
	return t.infos(ctx, after, t.store.Scan, func(r store.Record) store.Millis { return r.Due })
}

// Dead is [Timers.Scan] for the dead letters, by the time of their death.
func (t *Timers) Dead(ctx context.Context, after Cursor) iter.Seq2[Info, error] {
	return t.infos(ctx, after, t.store.ScanDead, func(r store.Record) store.Millis { return r.Died })
}

// infos merges what a Scan or ScanDead of the store returns.
func (t *Timers) infos(
	ctx context.Context, after Cursor,
	scan func(ctx context.Context, shard int, after store.Cursor, limit int) ([]store.Record, error),
	at func(store.Record) store.Millis,
) iter.Seq2[Info, error] {
	read := func(ctx context.Context, shard int, after store.Cursor, limit int) ([]store.Record, bool, error) {
		page, err := scan(ctx, shard, after, limit)
		return page, len(page) < limit, err
	}
	return func(yield func(Info, error) bool) {
		for r, err := range t.merged(ctx, after, read, at) {
			if err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(infoOf(r), nil) {
				return
			}
		}
	}
}

// pageReader reads a page of a shard, and tells whether nothing comes after it.
type pageReader func(ctx context.Context, shard int, after store.Cursor, limit int) (page []store.Record, last bool, err error)

// The first page of each shard is small, for the sake of loops that end early. Each further
// one has pageGrowth times as many records, up to maxPage, or to the shard's part of maxRead:
// that bounds memory.
const (
	firstPage  = 16
	pageGrowth = 4
	minPage    = 8 // with very many shards
	maxPage    = 256
	maxRead    = 4096 // of all shards together
)

// merged merges the records after a cursor that read returns of each shard in order of at.
func (t *Timers) merged(ctx context.Context, after Cursor, read pageReader, at func(store.Record) store.Millis) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		m := merge{at: at}
		largest := min(max(maxRead/len(t.schedules), minPage), maxPage)
		fill := func(p *page) error {
			ctx, cancel, err := t.begin(ctx)
			if err != nil {
				return err
			}
			defer cancel()
			p.rest, p.last, err = read(ctx, p.shard, p.after, p.limit)
			if n := len(p.rest); n > 0 {
				last := p.rest[n-1]
				p.after = store.Cursor{At: at(last), Key: last.Key}
			}
			p.limit = min(p.limit*pageGrowth, largest)
			return err
		}
		for shard := range t.schedules {
			p := &page{shard: shard, after: after, limit: min(firstPage, largest)}
			if err := fill(p); err != nil {
				yield(store.Record{}, err)
				return
			}
			if len(p.rest) > 0 {
				m.pages = append(m.pages, p)
			}
		}
		heap.Init(&m)
		for len(m.pages) > 0 {
			p := m.pages[0]
			r := p.rest[0]
			p.rest = p.rest[1:]
			if !yield(r, nil) {
				return
			}
			if len(p.rest) == 0 && !p.last {
				if err := fill(p); err != nil {
					yield(store.Record{}, err)
					return
				}
			}
			if len(p.rest) == 0 {
				heap.Pop(&m)
			} else {
				heap.Fix(&m, 0)
			}
		}
	}
}

// page is where a merge stands in one shard.
type page struct {
	shard int
	rest  []store.Record // read and not yet passed on; not empty while in a merge
	after store.Cursor   // of the last that was read
	last  bool           // nothing comes after rest
	limit int            // of the next read
}

// merge is a heap of pages, by their first record.
type merge struct {
	pages []*page
	at    func(store.Record) store.Millis
}

func (m *merge) Len() int      { return len(m.pages) }
func (m *merge) Swap(i, j int) { m.pages[i], m.pages[j] = m.pages[j], m.pages[i] }
func (m *merge) Less(i, j int) bool {
	a, b := m.pages[i].rest[0], m.pages[j].rest[0]
	return cmp.Or(cmp.Compare(m.at(a), m.at(b)), cmp.Compare(a.Key, b.Key)) < 0
}
func (m *merge) Push(any) { panic("durable: a merge does not grow") }
func (m *merge) Pop() any {
	last := m.pages[len(m.pages)-1]
	m.pages = m.pages[:len(m.pages)-1]
	return last
}
