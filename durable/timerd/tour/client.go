package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// apiClient reads and changes timerd's state.
type apiClient struct {
	*client.Client
	base      string
	receivers []string // URLs for callbacks
}

// newClient returns a client that sends each request once, so that the ledgers have every attempt.
func newClient(base string) (*client.Client, error) {
	return client.New(base, client.Options{
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxConcurrent}},
		Timeout:    requestTimeout, Retries: client.NoRetries,
	})
}

// retry repeats f, which makes a request, until the store answers, because the proxy injects
// faults. Answers include that a timer or schedule does not exist and that timerd cannot read it;
// the check judges them.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		var e *client.Error
		switch {
		case errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrProblem):
			return nil
		case !errors.As(err, &e) || e.Status < 500 && !errors.Is(err, client.ErrUnavailable):
			return err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// busy returns how many timers wait or run, as of at most a second ago.
func (c apiClient) busy(ctx context.Context) (n int, err error) {
	for {
		metrics, err := c.metrics(ctx)
		if err != nil {
			return 0, err
		}
		// A scrape has the values that the previous one requested, once the store has answered.
		if age, ok := metrics["age_seconds"]; ok && age <= 1 {
			return int(metrics["waiting"] + metrics["leased"]), nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// metrics returns the store's metrics, by the ends of their names.
func (c apiClient) metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("timerd: /metrics: %s", res.Status)
	}
	metrics := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		metric, value, _ := strings.Cut(lines.Text(), " ")
		name, ours := strings.CutPrefix(metric, "limbo_durable_")
		name, of := strings.CutSuffix(name, `{name="timers"}`)
		if !ours || !of {
			continue
		}
		if metrics[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("timerd: /metrics: %w", err)
		}
	}
	return metrics, lines.Err()
}

// all are options for lists with the longest pages.
var all = client.ListOptions{PageSize: 500}

// dead returns the keys and the last errors of all dead letters.
func (c apiClient) dead(ctx context.Context) (map[string]string, error) {
	dead := make(map[string]string)
	for i, err := range c.List(ctx, client.Query{State: client.Dead, ListOptions: all}) {
		if err != nil {
			return dead, err
		}
		dead[i.Key] = i.LastError
	}
	return dead, nil
}

// schedules returns all schedules.
func (c apiClient) schedules(ctx context.Context) (infos []client.ScheduleInfo, err error) {
	for i, err := range c.Schedules(ctx, all) {
		if err != nil {
			return infos, err
		}
		infos = append(infos, i)
	}
	return infos, nil
}

// purge removes dead letters. If the answer is lost, the repetition gets Absent.
func (c apiClient) purge(ctx context.Context, keys []string) error {
	return each(ctx, keys, func(ctx context.Context, key string) error {
		_, err := c.Purge(ctx, key)
		return err
	})
}

// remove deletes schedules.
func (c apiClient) remove(ctx context.Context, infos []client.ScheduleInfo) error {
	return each(ctx, infos, func(ctx context.Context, i client.ScheduleInfo) error {
		_, err := c.DeleteSchedule(ctx, i.Key, false)
		return err
	})
}

// each calls f for each element of all, some at the same time.
func each[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, v := range all {
		group.Go(func() error { return retry(ctx, func() error { return f(ctx, v) }) })
	}
	return group.Wait()
}
