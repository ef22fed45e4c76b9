package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
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

// waiting lists the waiting timers, by due time.
func (s *Server) waiting(r *http.Request) (int, any, error) {
	return list(r, s.o.Timers.Scan, func(i durable.Info) time.Time { return i.Due })
}

// dead lists the dead letters, by the time of their death.
func (s *Server) dead(r *http.Request) (int, any, error) {
	return list(r, s.o.Timers.Dead, func(i durable.Info) time.Time { return i.Died })
}

// list answers with a page of what scan returns, which is in order of at.
func list(r *http.Request, scan func(context.Context, durable.Cursor) iter.Seq2[durable.Info, error], at func(durable.Info) time.Time) (int, any, error) {
	limit, after, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	page := Page{Timers: []Info{}}
	for timer, err := range scan(r.Context(), after) {
		if err != nil {
			return 0, nil, err
		}
		if len(page.Timers) == limit {
			page.Next = formatCursor(after)
			break
		}
		page.Timers = append(page.Timers, infoOf(timer))
		after = durable.Cursor{At: store.MillisAt(at(timer)), Key: timer.Key}
	}
	return http.StatusOK, page, nil
}

func pageOf(r *http.Request) (limit int, after durable.Cursor, err error) {
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
func formatCursor(c durable.Cursor) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(c.At)), c.Key...))
}

func parseCursor(s string) (c durable.Cursor, err error) {
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
