package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
)

const (
	defaultPage = 100
	maxPage     = 500
)

// ListOptions configure a list. The zero value is valid.
type ListOptions struct {
	// PageSize is the number of elements of one request: 1 to 500, default 100.
	PageSize int
}

// Scan returns the waiting timers, by due time. It reads page by page, on demand, so it shows
// each timer as of its page. After an error the iteration ends.
func (c *Client) Scan(ctx context.Context, o ListOptions) iter.Seq2[TimerInfo, error] {
	return list(ctx, c, "/timers", o, newTimerPage)
}

// Dead returns the dead letters, by the time of their death, as Scan returns the waiting timers.
func (c *Client) Dead(ctx context.Context, o ListOptions) iter.Seq2[TimerInfo, error] {
	return list(ctx, c, "/dead", o, newTimerPage)
}

// Schedules returns the schedules, by key, as Scan returns the waiting timers. They have neither
// Callback, Body nor Last.
func (c *Client) Schedules(ctx context.Context, o ListOptions) iter.Seq2[ScheduleInfo, error] {
	return list(ctx, c, "/schedules", o, func() page[ScheduleInfo] { return new(schedulePage) })
}

func newTimerPage() page[TimerInfo] { return new(timerPage) }

// page is a part of a list of T.
type page[T any] interface {
	understood
	values() iter.Seq[T]
	next() string // where the next page begins; empty: this is the last one
}

func (p *timerPage) values() iter.Seq[TimerInfo] {
	return func(yield func(TimerInfo) bool) {
		for i := range p.Timers {
			if !yield(p.Timers[i].info()) {
				return
			}
		}
	}
}

func (p *schedulePage) values() iter.Seq[ScheduleInfo] {
	return func(yield func(ScheduleInfo) bool) {
		for i := range p.Schedules {
			if !yield(p.Schedules[i].info()) {
				return
			}
		}
	}
}

func (p *timerPage) next() string    { return p.Next }
func (p *schedulePage) next() string { return p.Next }

// list reads a list, page by page.
func list[T any](ctx context.Context, c *Client, path string, o ListOptions, newPage func() page[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		size := cmp.Or(o.PageSize, defaultPage)
		if size < 1 || size > maxPage {
			yield(none, invalid("ListOptions.PageSize", fmt.Sprint(size), fmt.Sprintf("1 to %d", maxPage)))
			return
		}
		for after := ""; ; {
			p := newPage()
			query := fmt.Sprintf("?limit=%d&after=%s", size, url.QueryEscape(after))
			if _, err := c.call(ctx, request{method: http.MethodGet, path: path + query, kind: reads}, p); err != nil {
				yield(none, err)
				return
			}
			for v := range p.values() {
				if !yield(v, nil) {
					return
				}
			}
			switch next := p.next(); next {
			case "":
				return
			case after: // the list would never end
				yield(none, &Error{Method: http.MethodGet, Path: path, Status: http.StatusOK, Message: "the page refers to itself as the next one"})
				return
			default:
				after = next
			}
		}
	}
}
