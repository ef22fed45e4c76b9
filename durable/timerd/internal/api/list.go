package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

const (
	defaultPage = 100
	maxPage     = 500
)

// timers lists the timers in the state that the request names, by default the waiting ones.
func (s *Server) timers(r *http.Request) (int, any, error) { return s.list(r, durable.Query{}) }

// dead lists dead letters.
func (s *Server) dead(r *http.Request) (int, any, error) {
	return s.list(r, durable.Query{State: durable.Dead})
}

// list answers with a page of timers.
func (s *Server) list(r *http.Request, q durable.Query) (int, any, error) {
	limit, err := queryOf(r, &q)
	if err != nil {
		return 0, nil, err
	}
	page := wire.Page{Timers: []wire.Info{}}
	for timer, err := range s.o.Timers.List(r.Context(), q) {
		if err != nil {
			return 0, nil, err
		}
		if len(page.Timers) == limit {
			page.Next = formatCursor(q.After)
			break
		}
		page.Timers = append(page.Timers, infoOf(timer))
		q.After = timer.Cursor()
	}
	return http.StatusOK, page, nil
}

// queryOf reads the parameters of a filter, and the state unless q has one.
func queryOf(r *http.Request, q *durable.Query) (limit int, err error) {
	atMost := func(to *string, n int) func(string) error {
		return func(value string) error {
			if len(value) > n {
				return fmt.Errorf("at most %d bytes", n)
			}
			*to = value
			return nil
		}
	}
	params := map[string]func(string) error{
		"prefix": atMost(&q.Prefix, durable.MaxKey),
		"topic":  atMost(&q.Topic, durable.MaxTopic),
		"error":  atMost(&q.Error, durable.MaxError),
	}
	if q.State == 0 {
		params["state"] = func(value string) error {
			for state := durable.Waiting; state <= durable.Dead; state++ {
				if value == state.String() {
					q.State = state
					return nil
				}
			}
			return errors.New("waiting, leased or dead")
		}
	}
	limit, q.After, err = pageOf(r, params)
	return limit, err
}

// pageOf reads the parameters limit and after, and those in more. Each function of more returns an
// error that says what its value must be.
func pageOf(r *http.Request, more map[string]func(value string) error) (limit int, after durable.Cursor, err error) {
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
		case more[name] == nil:
			names := append(slices.Sorted(maps.Keys(more)), "limit and after")
			return 0, after, invalid(strictjson.Shown(name), "a parameter", "absent: there are "+strings.Join(names, ", "))
		default:
			must := err
			if err == nil && value != "" {
				must = more[name](value)
			}
			if must != nil {
				return 0, after, invalid(name, quote(value), must.Error())
			}
		}
	}
	return limit, after, nil
}

// A cursor is base64 of its time, in 8 bytes, and its key.
func formatCursor(c durable.Cursor) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(c.At)), c.Key...))
}

func parseCursor(s string) (c durable.Cursor, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 9 || len(b) > 8+durable.MaxKey {
		return c, base64.CorruptInputError(0)
	}
	c.At, c.Key = durable.Millis(binary.BigEndian.Uint64(b)), string(b[8:])
	if c.At < 0 || c.At > durable.MaxMillis {
		return c, base64.CorruptInputError(0)
	}
	return c, nil
}
