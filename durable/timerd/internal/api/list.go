package api

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	defaultPage = 100
	maxPage     = 500
)

// Page is a part of a list.
type Page struct {
	Timers []Info `json:"timers"`
	Next   string `json:"next,omitempty"` // for after=, if there may be more
}

// scan is Store.Scan or Store.ScanDead.
type scan func(ctx context.Context, shard int, after store.Cursor, limit int) ([]store.Record, error)

// list answers with the timers that come after a cursor in the order of all
// shards: the lists of the shards are merged, and each is read in chunks, so that a
// page reads about twice as much as it shows.
func (s *Server) list(r *http.Request, scan scan, at func(store.Record) store.Millis) (int, any, error) {
	limit, after, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	m := merge{ctx: r.Context(), scan: scan, at: at, chunk: min(2*limit/s.o.Store.Shards()+2, limit)}
	for shard := range s.o.Store.Shards() {
		if err := m.add(&source{shard: shard, after: after}); err != nil {
			return 0, nil, err
		}
	}
	heap.Init(&m)
	page := Page{Timers: []Info{}}
	for len(m.sources) > 0 && len(page.Timers) < limit {
		rec := m.sources[0].chunk[0]
		page.Timers = append(page.Timers, infoOf(rec))
		after = store.Cursor{At: at(rec), Key: rec.Key}
		if err := m.next(); err != nil {
			return 0, nil, err
		}
	}
	if len(m.sources) > 0 {
		page.Next = formatCursor(after)
	}
	return http.StatusOK, page, nil
}

// merge is a heap of the shards that have more, the one with the earliest timer on
// top.
type merge struct {
	ctx     context.Context
	scan    scan
	at      func(store.Record) store.Millis
	chunk   int
	sources []*source
}

// source is what was read of one shard and not used yet.
type source struct {
	shard int
	after store.Cursor // the last one that was read
	chunk []store.Record
	last  bool // there is nothing after chunk
}

// add reads a shard and appends it unless there is nothing.
func (m *merge) add(src *source) error {
	if err := m.read(src); err != nil {
		return err
	}
	if len(src.chunk) > 0 {
		m.sources = append(m.sources, src)
	}
	return nil
}

func (m *merge) read(src *source) error {
	records, err := m.scan(m.ctx, src.shard, src.after, m.chunk)
	if err != nil {
		return err
	}
	src.chunk, src.last = records, len(records) < m.chunk
	if n := len(records); n > 0 {
		src.after = store.Cursor{At: m.at(records[n-1]), Key: records[n-1].Key}
	}
	return nil
}

// next goes on to the next timer.
func (m *merge) next() error {
	src := m.sources[0]
	src.chunk = src.chunk[1:]
	if len(src.chunk) == 0 && !src.last {
		if err := m.read(src); err != nil {
			return err
		}
	}
	if len(src.chunk) == 0 {
		heap.Pop(m)
	} else {
		heap.Fix(m, 0)
	}
	return nil
}

func (m *merge) Len() int { return len(m.sources) }
func (m *merge) Less(i, j int) bool {
	a, b := m.sources[i].chunk[0], m.sources[j].chunk[0]
	return cmp.Or(cmp.Compare(m.at(a), m.at(b)), cmp.Compare(a.Key, b.Key)) < 0
}
func (m *merge) Swap(i, j int) { m.sources[i], m.sources[j] = m.sources[j], m.sources[i] }
func (m *merge) Push(any)      { panic("timerd: sources are only added before the heap is made") }
func (m *merge) Pop() any {
	n := len(m.sources) - 1
	src := m.sources[n]
	m.sources = m.sources[:n]
	return src
}

func pageOf(r *http.Request) (limit int, after store.Cursor, err error) {
	limit = defaultPage
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") { // URL.Query would keep any number of them
		name, value, _ := strings.Cut(part, "=")
		value, err := url.QueryUnescape(value)
		switch {
		case part == "":
		case name == "limit":
			if err == nil && value != "" {
				limit, err = strconv.Atoi(value)
			}
			if err != nil || limit < 1 || limit > maxPage {
				return 0, after, invalid("limit", quote(value), "1 to "+strconv.Itoa(maxPage))
			}
		case name == "after":
			if err == nil && value != "" {
				after, err = parseCursor(value)
			}
			if err != nil {
				return 0, after, invalid("after", quote(value), "what an earlier page has as next")
			}
		default:
			return 0, after, invalid(strictjson.Shown(name), "a parameter", "absent: there are limit and after")
		}
	}
	return limit, after, nil
}

// A cursor is shown as base64 of its time, 8 bytes, and its key.
func formatCursor(c store.Cursor) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(c.At)), c.Key...))
}

func parseCursor(s string) (c store.Cursor, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 9 || len(b) > 8+store.MaxKey {
		return c, base64.CorruptInputError(0)
	}
	c.At, c.Key = store.Millis(binary.BigEndian.Uint64(b)), string(b[8:])
	if c.At < 0 || c.At > store.MaxMillis {
		return c, base64.CorruptInputError(0)
	}
	return c, nil
}
