package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// reply is one answer of a script.
type reply struct {
	status int
	body   string
	header map[string]string
	slow   bool // no answer before the attempt times out
}

// script is a server that answers the requests in turn, and all further ones with the last answer.
// It records the times of the requests.
type script struct {
	answers []reply
	at      []time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Now())
	a := s.answers[min(len(s.at), len(s.answers))-1]
	if a.slow {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	res := &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r,
	}
	for name, value := range a.header {
		res.Header.Set(name, value)
	}
	return res, nil
}

// pauses returns the times between the requests.
func (s *script) pauses() (all []time.Duration) {
	for i := 1; i < len(s.at); i++ {
		all = append(all, s.at[i].Sub(s.at[i-1]))
	}
	return all
}

var (
	busy      = reply{status: 503, body: `{"error":{"code":"timeout","message":"busy"}}`}
	cancelled = reply{status: 200, body: `{"key":"a","result":"cancelled"}`}
	slow      = reply{slow: true}
)

func retryAfter(value string) reply {
	return reply{status: 503, header: map[string]string{"Retry-After": value}}
}

// run runs f on virtual time, with a client of s.
func run(t *testing.T, s *script, o client.Options, f func(*testing.T, *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.HTTPClient = &http.Client{Transport: s}
		f(t, newClient(t, "http://127.0.0.1", o))
	})
}

func TestBackoff(t *testing.T) {
	s := &script{answers: []reply{busy}}
	run(t, s, client.Options{Retries: 6, Backoff: time.Second, MaxBackoff: 10 * time.Second}, func(t *testing.T, c *client.Client) {
		_, err := c.Cancel(t.Context(), "a")
		require.EqualError(t, err, "client: DELETE /timers/a: busy (503 timeout), after 7 attempts")
	})
	bounds := []time.Duration{1, 2, 4, 8, 10, 10}
	require.Len(t, s.pauses(), len(bounds))
	for i, pause := range s.pauses() {
		require.LessOrEqual(t, pause, bounds[i]*time.Second)
		require.GreaterOrEqual(t, pause, bounds[i]*time.Second/2)
	}
}

func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		header func() string
		pause  time.Duration // 0: the client does not wait
	}{
		"seconds":  {func() string { return "7" }, 7 * time.Second},
		"date":     {func() string { return time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat) }, 9 * time.Second},
		"too long": {func() string { return "61" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			run(t, s, client.Options{}, func(t *testing.T, cl *client.Client) {
				s.answers = []reply{retryAfter(c.header()), cancelled}
				_, err := cl.Cancel(t.Context(), "a")
				if c.pause > 0 {
					require.NoError(t, err)
					return
				}
				var e *client.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, 61*time.Second, e.RetryAfter)
			})
			if c.pause > 0 {
				require.Equal(t, []time.Duration{c.pause}, s.pauses())
			}
		})
	}
}

// An attempt that times out is repeated; the end of the context is final.
func TestSlow(t *testing.T) {
	s := &script{answers: []reply{slow, cancelled}}
	run(t, s, client.Options{Timeout: 2 * time.Second}, func(t *testing.T, c *client.Client) {
		r, err := c.Cancel(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, client.Receipt{Key: "a", Result: client.Cancelled, Repeated: true}, r)
	})
	s = &script{answers: []reply{slow}}
	run(t, s, client.Options{Timeout: 2 * time.Second, Retries: client.NoRetries}, func(t *testing.T, c *client.Client) {
		_, err := c.Cancel(t.Context(), "a")
		require.EqualError(t, err, "client: DELETE /timers/a: no reply within 2s; the change may have been made")
		require.ErrorIs(t, err, client.ErrUnsure)
		require.ErrorIs(t, err, client.ErrUnavailable)
	})
	s = &script{answers: []reply{slow}}
	run(t, s, client.Options{}, func(t *testing.T, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Cancel(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, client.ErrUnsure)
		require.Equal(t, time.Second, time.Since(began))
	})
	require.Len(t, s.at, 1)
}

// The client does not pause if the deadline would pass, and a cancelled context ends a pause.
func TestContextInPause(t *testing.T) {
	s := &script{answers: []reply{retryAfter("30")}}
	run(t, s, client.Options{}, func(t *testing.T, c *client.Client) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := c.Cancel(ctx, "a")
		require.ErrorIs(t, err, client.ErrUnavailable)
		require.Zero(t, time.Since(began))

		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { stop(errStopped) })
		_, err = c.Cancel(ctx, "a")
		require.ErrorIs(t, err, errStopped)
		require.ErrorIs(t, err, client.ErrUnavailable)
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}

var errStopped = errors.New("stopped")

// Ping is not repeated.
func TestPingOnce(t *testing.T) {
	s := &script{answers: []reply{busy}}
	run(t, s, client.Options{}, func(t *testing.T, c *client.Client) {
		require.ErrorIs(t, c.Ping(t.Context()), client.ErrUnavailable)
	})
	require.Len(t, s.at, 1)
}

// After an attempt that timerd may have carried out, every later error stays unsure.
func TestUnsureStays(t *testing.T) {
	full := reply{status: 507, body: `{"error":{"code":"full","message":"full"}}`}
	s := &script{answers: []reply{slow, full}}
	run(t, s, client.Options{}, func(t *testing.T, c *client.Client) {
		_, err := c.Schedule(t.Context(), timer("a", 0))
		require.ErrorIs(t, err, client.ErrFull)
		require.ErrorIs(t, err, client.ErrUnsure)
		require.EqualError(t, err, "client: PUT /timers/a: full (507 full), after 2 attempts; the change may have been made")
	})
}
