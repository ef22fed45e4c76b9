package client_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

func (f *fixture) is(want client.Result, got client.Receipt, err error) {
	f.t.Helper()
	require.NoError(f.t, err)
	require.Equal(f.t, want, got.Result)
	require.False(f.t, got.Repeated)
}

func TestTimer(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	require.NoError(t, f.Ping(ctx))
	full := client.Timer{
		Key: "order/7", After: 90 * time.Second, Topic: "orders", Body: []byte("a<b"),
		Callback: client.Callback{URL: "http://example.com/done?a&b", Method: "PUT", Headers: map[string]string{"X-A": "b"}, Timeout: 5 * time.Second},
	}
	r, err := f.Schedule(ctx, full)
	require.NoError(t, err)
	require.Equal(t, client.Receipt{Key: "order/7", Result: client.Created, Due: noon.Add(90 * time.Second)}, r)
	i, err := f.Get(ctx, "order/7")
	require.NoError(t, err)
	require.Len(t, i.ID, 32)
	i.ID = ""
	require.Equal(t, client.TimerInfo{
		Key: "order/7", Name: "order/7", State: client.Waiting, Topic: "orders", Due: noon.Add(90 * time.Second),
		Callback: full.Callback, Body: full.Body,
	}, i)

	r, err = f.Reset(ctx, "order/7", 0)
	f.is(client.Moved, r, err)
	r, err = f.ResetAt(ctx, "order/7", noon)
	f.is(client.Moved, r, err)
	f.claim("order/7")
	r, err = f.Reset(ctx, "order/7", time.Hour)
	f.is(client.Running, r, err)
	full.After, full.At = 0, noon.Add(time.Hour)
	r, err = f.Schedule(ctx, full)
	f.is(client.Succeeds, r, err)
	i, err = f.Get(ctx, "order/7")
	require.NoError(t, err)
	require.Equal(t, client.Leased, i.State)
	require.Equal(t, noon.Add(time.Minute), i.LeaseEnd)
	require.Equal(t, noon.Add(time.Hour), i.SuccessorDue)
	r, err = f.Cancel(ctx, "order/7")
	f.is(client.Running, r, err)

	r, err = f.Schedule(ctx, timer("a", time.Hour))
	f.is(client.Created, r, err)
	r, err = f.Schedule(ctx, timer("a", time.Hour))
	f.is(client.Replaced, r, err)
	absent := timer("a", time.Hour)
	absent.IfAbsent = true
	r, err = f.Schedule(ctx, absent)
	f.is(client.Exists, r, err)
	require.Zero(t, r.Due)
	r, err = f.Cancel(ctx, "a")
	f.is(client.Cancelled, r, err)
	r, err = f.Cancel(ctx, "a")
	f.is(client.NotFound, r, err)
	r, err = f.Reset(ctx, "a", time.Hour)
	f.is(client.Absent, r, err)
	_, err = f.Get(ctx, "a")
	require.ErrorIs(t, err, client.ErrNotFound)
	require.EqualError(t, err, "client: GET /timers/a: durable: no such timer or schedule (404 not_found)")
}

func TestDeadLetters(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	for range 2 {
		_, err := f.Schedule(ctx, timer("a", 0))
		require.NoError(t, err)
		f.deadLetter(f.claim("a"), "no")
		dead := collect(t, f.List(ctx, client.Query{State: client.Dead}))
		require.Len(t, dead, 1)
		require.Equal(t, "no", dead[0].LastError)
		require.Equal(t, client.Dead, dead[0].State)
		require.Equal(t, noon, dead[0].Died)
		require.Empty(t, dead[0].Callback)
	}
	r, err := f.Requeue(ctx, "a")
	f.is(client.Requeued, r, err)
	r, err = f.Requeue(ctx, "a")
	f.is(client.Exists, r, err)
	r, err = f.Requeue(ctx, "b")
	f.is(client.Absent, r, err)
	f.deadLetter(f.claim("a"), "no")
	r, err = f.Schedule(ctx, timer("a", 0))
	f.is(client.ReplacedDeadLetter, r, err)
	f.deadLetter(f.claim("a"), "no")
	r, err = f.Purge(ctx, "a")
	f.is(client.Purged, r, err)
	r, err = f.Purge(ctx, "a")
	f.is(client.Absent, r, err)
}

func TestAnyKeyAndBody(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	for _, key := range []string{"/", "//", "a//b", ".", "..", "../a", "a b", "{x}", "%2F", "?", "#", "ä", "\x01", "\xff\xfe", strings.Repeat("/", store.MaxKey)} {
		sent := timer(key, time.Hour)
		sent.Body = []byte{0, 255}
		r, err := f.Schedule(ctx, sent)
		f.is(client.Created, r, err)
		i, err := f.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, key, i.Key)
		require.Equal(t, sent.Body, i.Body)
		require.Equal(t, key, collect(t, f.List(ctx, client.Query{}))[0].Key)
		r, err = f.Cancel(ctx, key)
		f.is(client.Cancelled, r, err)
	}
}

func TestScheduleMany(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{MaxPending: 1}, ""), t.Context()
	receipts, err := f.ScheduleMany(ctx, []client.Timer{timer("a", time.Hour), timer("a", 2*time.Hour)})
	require.NoError(t, err)
	require.Equal(t, []client.Receipt{
		{Key: "a", Result: client.Created, Due: noon.Add(time.Hour)}, {Key: "a", Result: client.Replaced, Due: noon.Add(2 * time.Hour)},
	}, receipts)
	b := "b"
	for store.ShardOf(b, shards) != store.ShardOf("a", shards) {
		b += "b"
	}
	receipts, err = f.ScheduleMany(ctx, []client.Timer{timer(b, time.Hour)})
	require.NoError(t, err)
	require.Equal(t, []client.Receipt{{Key: b, Result: client.Refused}}, receipts)
	_, err = f.Schedule(ctx, timer(b, time.Hour))
	require.ErrorIs(t, err, client.ErrFull)
	require.NotErrorIs(t, err, client.ErrUnavailable)
	require.NotErrorIs(t, err, client.ErrUnsure)
}

// A list has only the timers that match.
func TestFilteredList(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	for i := range 9 {
		one := timer(fmt.Sprintf("%s&%d", []string{"mail", "sms", "päck"}[i%3], i), time.Duration(i)*time.Second)
		one.Topic = []string{"", "a b"}[i%2]
		_, err := f.Schedule(ctx, one)
		require.NoError(t, err)
	}
	keys := func(q client.Query) (keys []string) {
		q.PageSize = 1
		for _, info := range collect(t, f.List(ctx, q)) {
			keys = append(keys, info.Key)
		}
		return keys
	}
	require.Equal(t, []string{"mail&0", "mail&3", "mail&6"}, keys(client.Query{Prefix: "mail&"}))
	require.Equal(t, []string{"päck&5"}, keys(client.Query{State: client.Waiting, Prefix: "päck", Topic: "a b"}))
	require.Empty(t, keys(client.Query{State: client.Dead}))
	require.Empty(t, keys(client.Query{State: client.Leased, Error: "502 & more"}))
	for _, q := range []client.Query{{State: "gone"}, {Prefix: strings.Repeat("x", 513)}, {Topic: strings.Repeat("x", 129)}, {Error: strings.Repeat("x", 1025)}} {
		for _, err := range f.List(ctx, q) {
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, 400, e.Status)
		}
	}
}

// A list has each timer once and in order, for any page size, and the caller can stop early.
func TestList(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	require.Empty(t, collect(t, f.List(ctx, client.Query{})))
	var timers []client.Timer
	for i := range 203 {
		timers = append(timers, timer(fmt.Sprintf("k%03d", i), time.Duration(i%20)*time.Second))
	}
	_, err := f.ScheduleMany(ctx, timers)
	require.NoError(t, err)
	for _, size := range []int{7, 0, 203, 500} {
		all := collect(t, f.List(ctx, client.Query{ListOptions: client.ListOptions{PageSize: size}}))
		require.Len(t, all, 203)
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			require.True(t, a.Due.Before(b.Due) || a.Due.Equal(b.Due) && a.Key < b.Key)
		}
	}
	before := len(f.received())
	for range f.List(ctx, client.Query{ListOptions: client.ListOptions{PageSize: 7}}) {
		break
	}
	require.Len(t, f.received(), before+1)
	require.NoError(t, f.store.Close())
	for _, err := range f.List(ctx, client.Query{}) {
		require.ErrorIs(t, err, client.ErrUnavailable)
	}
	for _, size := range []int{-1, 501} {
		n := 0
		for _, err := range f.List(ctx, client.Query{ListOptions: client.ListOptions{PageSize: size}}) {
			require.EqualError(t, err, fmt.Sprintf("client: ListOptions.PageSize is %d, must be 1 to 500", size))
			n++
		}
		require.Equal(t, 1, n)
	}
}

// Errors of timerd and of the client name the field, the value and the range.
func TestInvalid(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	with := func(change func(*client.Timer)) client.Timer {
		sent := timer("a", time.Hour)
		change(&sent)
		return sent
	}
	for want, sent := range map[string]client.Timer{
		`client: PUT /timers/a: callback.url is "ftp://a", must be an absolute URL with http or https (400 invalid)`:         with(func(t *client.Timer) { t.Callback.URL = "ftp://a" }),
		`client: PUT /timers/a: after is "-1s", must be a duration of 0s or more, such as 1m30s (400 invalid)`:               with(func(t *client.Timer) { t.After = -time.Second }),
		`client: Timer.After is 1h0m0s, must be 0s if At is set`:                                                             with(func(t *client.Timer) { t.At = noon }),
		`client: Timer.Topic is "\xff", must be UTF-8`:                                                                       with(func(t *client.Timer) { t.Topic = "\xff" }),
		`client: Timer.Callback.Headers is "\xff", must be UTF-8`:                                                            with(func(t *client.Timer) { t.Callback.Headers = map[string]string{"A": "\xff"} }),
		`client: key is "", must be 1 byte or longer`:                                                                        with(func(t *client.Timer) { t.Key = "" }),
		`client: PUT /timers/a%00b: key is "a\x00b", must be without zero bytes (400 invalid)`:                               with(func(t *client.Timer) { t.Key = "a\x00b" }),
		`client: PUT /timers/a: callback.timeout is "1h0m0s", must be a duration of more than 0s, up to 10m0s (400 invalid)`: with(func(t *client.Timer) { t.Callback.Timeout = time.Hour }),
	} {
		_, err := f.Schedule(ctx, sent)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, client.ErrInvalid)
		var e *client.Error
		require.ErrorAs(t, err, &e)
		require.Contains(t, want, e.Field+" is "+e.Value+", must be "+e.Range)
	}
	for want, sent := range map[string][]client.Timer{
		"client: timers is 0 of them, must be 1 to 500":                                                  nil,
		"client: timers is 501 of them, must be 1 to 500":                                                make([]client.Timer, 501),
		`client: timers[0].Key is "\xff", must be UTF-8; Schedule takes any bytes`:                       {timer("\xff", 0)},
		`client: timers[1].After is 1ns, must be 0s if At is set`:                                        {timer("a", 0), {Key: "b", At: noon, After: 1}},
		`client: POST /timers: timers[1].key is 0 bytes long, must be 1 to 512 bytes long (400 invalid)`: {timer("a", 0), timer("", 0)},
	} {
		_, err := f.ScheduleMany(ctx, sent)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, client.ErrInvalid)
	}
	_, err := f.Get(ctx, "")
	require.ErrorIs(t, err, client.ErrInvalid)
	_, err = f.GetSchedule(ctx, "")
	require.ErrorIs(t, err, client.ErrInvalid)
	require.ErrorIs(t, f.ResumeSchedule(ctx, ""), client.ErrInvalid)
}

func TestToken(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, "0123456789abcdef"), t.Context()
	_, err := f.Schedule(ctx, timer("a", 0))
	require.NoError(t, err)
	other, err := client.New("http://"+f.received()[0].Host, client.Options{Token: "x"})
	require.NoError(t, err)
	defer other.CloseIdleConnections()
	require.NoError(t, other.Ping(ctx))
	_, err = other.Get(ctx, "a")
	require.ErrorIs(t, err, client.ErrUnauthorized)
	require.EqualError(t, err, "client: GET /timers/a: the request has no valid token: Authorization: Bearer … (401 token)")
}

func TestClosedStore(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	require.NoError(t, f.store.Close())
	_, err := f.Schedule(ctx, timer("a", 0))
	require.ErrorIs(t, err, client.ErrUnavailable)
	require.NotErrorIs(t, err, client.ErrUnsure)
	require.ErrorIs(t, f.Ping(ctx), client.ErrUnavailable)
	receipts, err := f.ScheduleMany(ctx, []client.Timer{timer("a", 0)})
	require.ErrorIs(t, err, client.ErrUnavailable)
	require.Equal(t, []client.Receipt{{Key: "a", Result: client.Unanswered}}, receipts)
}

func TestConcurrentUse(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	errs := make([]error, 16)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			key := fmt.Sprintf("k%d", i)
			_, scheduled := f.Schedule(ctx, timer(key, time.Hour))
			_, got := f.Get(ctx, key)
			for _, err := range f.List(ctx, client.Query{ListOptions: client.ListOptions{PageSize: 3}}) {
				got = errors.Join(got, err)
			}
			_, cancelled := f.Cancel(ctx, key)
			errs[i] = errors.Join(scheduled, got, cancelled)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
}
