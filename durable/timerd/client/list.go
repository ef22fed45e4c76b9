package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

const (
	defaultPage = 100
	maxPage     = 500
)

// ListOptions configure a list. The zero value is valid.
type ListOptions struct {
	// PageSize is the number of elements per request: 1 to 500, default 100.
	PageSize int
}

// Query selects the timers of [Client.List]. The zero value selects the waiting ones.
type Query struct {
	State  State  // Waiting, which is the default, Leased or Dead
	Prefix string // of the keys; at most 512 bytes
	Topic  string // "": any topic; at most 128 bytes
	Error  string // a substring of the last error, in any case of ASCII letters; at most 1 KiB
	ListOptions
}

// List returns waiting timers by due time, leased timers by the end of the lease, or dead letters
// by the time of their death. It reads page by page, on demand, so each timer is as of the read of
// its page. The iteration ends after an error.
func (c *Client) List(ctx context.Context, q Query) iter.Seq2[TimerInfo, error] {
	filter := url.Values{}
	for name, value := range map[string]string{"state": string(q.State), "prefix": q.Prefix, "topic": q.Topic, "error": q.Error} {
		if value != "" {
			filter.Set(name, value)
		}
	}
	return list(ctx, c, "/timers", filter, q.ListOptions, (*reader).timers)
}

// Schedules returns the schedules by key, page by page as List does. They have no Callback, Body or
// Last.
func (c *Client) Schedules(ctx context.Context, o ListOptions) iter.Seq2[ScheduleInfo, error] {
	return list(ctx, c, "/schedules", url.Values{}, o, (*reader).schedules)
}

// page is a page of a list of T.
type page[T any] struct {
	values []T
	next   string // cursor of the next page; empty on the last page
}

// list reads a list, page by page.
func list[T, W any](ctx context.Context, c *Client, path string, query url.Values, o ListOptions, convert func(*reader, *W) page[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		size := cmp.Or(o.PageSize, defaultPage)
		if size < 1 || size > maxPage {
			yield(none, invalid("ListOptions.PageSize", fmt.Sprint(size), fmt.Sprintf("1 to %d", maxPage)))
			return
		}
		query := maps.Clone(query) // each iteration begins at the first page
		query.Set("limit", strconv.Itoa(size))
		for after := ""; ; {
			var p page[T]
			if _, err := c.call(ctx, request{method: http.MethodGet, path: path + "?" + query.Encode(), kind: readOnly}, into(&p, convert)); err != nil {
				yield(none, err)
				return
			}
			for _, v := range p.values {
				if !yield(v, nil) {
					return
				}
			}
			switch p.next {
			case "":
				return
			case after: // the list would not end
				yield(none, &Error{Method: http.MethodGet, Path: path, Status: http.StatusOK, Message: "the page refers to itself as the next one"})
				return
			default:
				after = p.next
				query.Set("after", after)
			}
		}
	}
}
