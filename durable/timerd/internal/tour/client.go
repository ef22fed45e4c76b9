package tour

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
)

// apiClient reads timerd's state.
type apiClient struct {
	base      string
	receivers []string // URLs of call-backs
}

// client gives up what is not answered, and read, in time.
var client = &http.Client{Timeout: patience}

func (c apiClient) call(ctx context.Context, method, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("timerd: %s %s: %s", method, path, res.Status)
	}
	return res.Body, nil
}

// busy returns how many timers wait or run, as of a second ago at most.
func (c apiClient) busy(ctx context.Context) (n int, err error) {
	for {
		f, err := c.figures(ctx)
		if err != nil {
			return 0, err
		}
		// A scrape has what was read because of the one before, if the store has answered.
		if age, ok := f["age_seconds"]; ok && age <= 1 {
			return int(f["waiting"] + f["leased"]), nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// figures returns those of the store, by the ends of their names.
func (c apiClient) figures(ctx context.Context) (map[string]float64, error) {
	body, err := c.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	figures := map[string]float64{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		metric, value, _ := strings.Cut(lines.Text(), " ")
		name, ours := strings.CutPrefix(metric, "limbo_durable_")
		name, of := strings.CutSuffix(name, `{name="timers"}`)
		if !ours || !of {
			continue
		}
		if figures[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("timerd: /metrics: %w", err)
		}
	}
	return figures, lines.Err()
}

// dead returns the keys and the last errors of all dead letters.
func (c apiClient) dead(ctx context.Context) (map[string]string, error) {
	dead := make(map[string]string)
	err := pages(ctx, c, "/dead", func(page api.Page) string {
		for _, i := range page.Timers {
			key, err := url.PathUnescape(strings.TrimPrefix(i.Path, "/timers/"))
			if err != nil {
				key = i.Key
			}
			dead[key] = i.LastError
		}
		return page.Next
	})
	return dead, err
}

// schedules returns all schedules.
func (c apiClient) schedules(ctx context.Context) (all []api.ScheduleInfo, err error) {
	err = pages(ctx, c, "/schedules", func(page api.SchedulePage) string {
		all = append(all, page.Schedules...)
		return page.Next
	})
	return all, err
}

// pages calls f with each page of a list; f returns where the next one begins, "" if it was
// the last.
func pages[P any](ctx context.Context, c apiClient, path string, f func(P) (next string)) error {
	for after := ""; ; {
		body, err := c.call(ctx, http.MethodGet, path+"?limit=500&after="+after)
		if err != nil {
			return err
		}
		var page P
		err = json.NewDecoder(body).Decode(&page)
		_ = body.Close()
		if err != nil {
			return err
		}
		if after = f(page); after == "" {
			return nil
		}
	}
}

func (c apiClient) requeue(ctx context.Context, key string) error {
	return c.do(ctx, http.MethodPost, "/dead/"+url.PathEscape(key))
}

// purge removes dead letters.
func (c apiClient) purge(ctx context.Context, keys []string) error {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = "/dead/" + url.PathEscape(key)
	}
	return c.deleteAll(ctx, paths)
}

// remove deletes schedules.
func (c apiClient) remove(ctx context.Context, infos []api.ScheduleInfo) error {
	paths := make([]string, len(infos))
	for i := range infos {
		paths[i] = infos[i].Path
	}
	return c.deleteAll(ctx, paths)
}

// delete sends a request until it has an answer of the store: the network still fails.
func (c apiClient) delete(ctx context.Context, path string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.base+path, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
			switch {
			case res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNotFound: // an answer was lost
				return nil
			case res.StatusCode < 500:
				return fmt.Errorf("timerd: DELETE %s: %s", path, res.Status)
			}
		}
		select {
		case <-time.After(resend):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deleteAll sends requests, some at the same time.
func (c apiClient) deleteAll(ctx context.Context, paths []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, path := range paths {
		group.Go(func() error { return c.delete(ctx, path) })
	}
	return group.Wait()
}

func (c apiClient) do(ctx context.Context, method, path string) error {
	body, err := c.call(ctx, method, path)
	if err != nil {
		return err
	}
	return body.Close()
}
