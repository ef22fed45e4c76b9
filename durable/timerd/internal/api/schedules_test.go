package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

const nightly = `{"cron":"30 2 * * 1-5","zone":"Europe/Berlin",` + callback + `}`

// schedule returns a schedule as GET shows it.
func (f *fixture) schedule(path string) (i wire.ScheduleInfo) {
	f.t.Helper()
	status, reply := f.do("GET", path, "")
	require.Equal(f.t, 200, status, reply)
	require.NoError(f.t, json.Unmarshal([]byte(reply), &i))
	return i
}

func (f *fixture) result(method, path, body string) (r wire.ScheduleResult) {
	f.t.Helper()
	status, reply := f.do(method, path, body)
	require.Equal(f.t, 200, status, reply)
	require.NoError(f.t, json.Unmarshal([]byte(reply), &r))
	return r
}

func TestPutSchedule(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	next := `"next":["2030-01-03T02:30:00+01:00","2030-01-04T02:30:00+01:00","2030-01-07T02:30:00+01:00","2030-01-08T02:30:00+01:00","2030-01-09T02:30:00+01:00",` +
		`"2030-01-10T02:30:00+01:00","2030-01-11T02:30:00+01:00","2030-01-14T02:30:00+01:00","2030-01-15T02:30:00+01:00","2030-01-16T02:30:00+01:00"]`
	f.expect(201, `{"key":"nightly","result":"created",`+next+`}`, "PUT", "/schedules/nightly", nightly)
	f.expect(200, `{"key":"nightly","result":"unchanged",`+next+`}`, "PUT", "/schedules/nightly", nightly)
	f.expect(409, `{"key":"nightly","result":"exists"}`, "PUT", "/schedules/nightly", strings.Replace(nightly, "{", `{"if_absent":true,`, 1))
	r := f.result("PUT", "/schedules/nightly", `{"cron":"* 13 * * *","limit":1,`+callback+`}`)
	require.Equal(t, []string{"2030-01-02T13:00:00Z"}, r.Next)
	require.Equal(t, "replaced", r.Result)
	require.Contains(t, r.Warning, "60 times")
	f.expect(201, `{"key":"beat","result":"created","next":["2030-01-02T12:00:01.5Z","2030-01-02T12:00:03Z"]}`, "PUT", "/schedules/beat",
		`{"every":"1500ms","offset":"0s","limit":2,`+callback+`}`)
	f.expect(201, `{"key":"twice","result":"created","next":["2030-01-03T00:03:00Z","2030-01-03T00:18:00Z"]}`, "PUT", "/schedules/twice",
		`{"every":"15m","offset":"3m","start":"2030-01-03T01:00:00+01:00","end":"2030-01-03T00:18:00Z",`+callback+`}`)
}

// GET shows all fields that PUT sent.
func TestGetSchedule(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.do("PUT", "/schedules/report", `{"cron":"0 9 1 * *","zone":"Asia/Kathmandu","start":"2030-02-01T00:00:00Z","end":"2030-05-01T00:00:00Z","limit":2,"jitter":"5m","overlap":"buffer_one",
		"missed":"all","catch_up":"36h","pause_on_dead":true,"topic":"reports","callback":{"url":"http://example.com/a","method":"PUT","headers":{"X-A":"b"},"timeout":"5s"},"body_base64":"AP8="}`)
	i := f.schedule("/schedules/report")
	require.Len(t, i.ID, 32)
	i.ID = ""
	want := wire.ScheduleInfo{
		Key: "report", Path: "/schedules/report", State: "active", Created: "2030-01-02T17:45:00.000+05:45",
		Recurrence: wire.Recurrence{Cron: "0 9 1 * *", Zone: "Asia/Kathmandu", Start: "2030-02-01T05:45:00+05:45", End: "2030-05-01T05:45:00+05:45", Limit: 2},
		Policy:     wire.Policy{Jitter: "5m0s", Overlap: "buffer_one", Missed: "all", CatchUp: "36h0m0s", PauseOnDead: true},
		Topic:      "reports", Next: []string{"2030-02-01T09:00:00+05:45", "2030-03-01T09:00:00+05:45"}, Last: []wire.Occurrence{},
		Content: wire.Content{
			Callback:   &wire.Callback{URL: "http://example.com/a", Method: "PUT", Headers: map[string]string{"X-A": "b"}, Timeout: "5s"},
			BodyBase64: []byte{0, 255},
		},
	}
	require.Equal(t, want, i)

	// An occurrence has the call that the handler makes.
	f.result("POST", "/schedules/report/trigger", "")
	lease := f.claim("report")
	call, err := webhook.Decode(lease.Body)
	require.NoError(t, err)
	require.Equal(t, webhook.Call{Method: "PUT", URL: "http://example.com/a", Headers: map[string]string{"X-A": "b"}, Timeout: 5 * time.Second, Body: []byte{0, 255}}, call)
	require.Equal(t, "reports", lease.Topic)

	f.do("PUT", "/schedules/beat", `{"every":"15m","offset":"3m",`+callback+`,"body":"hello"}`)
	i = f.schedule("/schedules/beat")
	require.Equal(t, wire.Recurrence{Every: "15m0s", Offset: "3m0s"}, i.Recurrence)
	require.Equal(t, wire.Policy{Overlap: "skip", Missed: "latest", CatchUp: "1h0m0s"}, i.Policy)
	require.Equal(t, "hello", i.Body)
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "GET", "/schedules/other", "")

	// The last planned time has passed without a worker.
	f.do("PUT", "/schedules/late", `{"cron":"0 14 * * *","zone":"Europe/Berlin","end":"2030-01-02T13:00:00Z",`+callback+`}`)
	f.now = noon.Add(time.Hour + 5*time.Second)
	i = f.schedule("/schedules/late")
	require.Equal(t, []string{"active", "2030-01-02T14:00:00+01:00"}, []string{i.State, i.Overdue})
	require.Equal(t, []string{}, i.Next)
}

// An error of the store has the same status as for timers.
func TestScheduleOfAFullStore(t *testing.T) {
	f := newFixture(t, store.Limits{MaxPending: 1}, "")
	f.do("PUT", "/schedules/a", nightly)
	const full = `{"error":{"code":"full","message":"durable: no more timers can be held"}}`
	f.expect(507, full, "POST", "/schedules/a/trigger", "")
	f.expect(507, full, "POST", "/schedules/a/backfill", `{"from":"2030-01-02T00:00:00Z","to":"2030-01-02T12:00:00Z"}`)
	f.expect(200, `{"key":"a","result":"paused"}`, "POST", "/schedules/a/pause", "")
}

// All routes accept keys with any bytes but zero bytes, even keys named like routes.
func TestAnyKeyOfSchedules(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	keys := []string{"order/7", "a/pause", "pause", "/pause", "preview", "preview/pause", "/", "//", ".", "..", "%2F", "a b", "?", "ä", "\xff", "\x01", strings.Repeat("/", 480)}
	for _, key := range keys {
		path := "/schedules/" + wire.Segment(key)
		status, reply := f.do("PUT", path, nightly)
		require.Equal(t, 201, status, "%q: %s", key, reply)
		for _, verb := range []string{"pause", "trigger", "resume", "pause"} {
			status, reply := f.do("POST", path+"/"+verb, "")
			require.Equal(t, 200, status, "%q: %s", key, reply)
		}
		i := f.schedule(path)
		require.Equal(t, path, i.Path)
		require.Equal(t, "paused", i.State)
		require.EqualValues(t, 1, i.Counts.Triggered)
		info, err := f.server.o.Timers.GetSchedule(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, key, info.Key)
		require.Equal(t, 1, *f.result("DELETE", path+"?occurrences=cancel", "").Cancelled)
	}
	// A path whose slashes are not encoded names the same schedule in all routes.
	f.do("PUT", "/schedules/a/b/pause", nightly)
	f.expect(200, `{"key":"a/b/pause","result":"paused"}`, "POST", "/schedules/a/b/pause/pause", "")
	f.expect(200, `{"key":"a/b/pause","result":"resumed"}`, "POST", "/schedules/a%2Fb/pause/resume", "")
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "POST", "/schedules/a/b/pause", "")
	for _, path := range []string{"/schedules/a%2Fpause", "/schedules/pause", "/schedules/a/stop", "/schedules/a/pause/"} {
		status, reply := f.do("POST", path, "")
		require.Equal(t, 404, status, path)
		require.Contains(t, reply, "no_route", path)
	}
}

func TestPauseAndResume(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.do("PUT", "/schedules/a", nightly)
	f.expect(200, `{"key":"a","result":"paused"}`, "POST", "/schedules/a/pause", `{"note":"holidays"}`)
	i := f.schedule("/schedules/a")
	require.Equal(t, []string{"paused", "2030-01-02T13:00:00.000+01:00", "holidays"}, []string{i.State, i.Paused, i.PauseNote})
	f.expect(200, `{"key":"a","result":"resumed"}`, "POST", "/schedules/a/resume", `{}`)
	i = f.schedule("/schedules/a")
	require.Equal(t, []string{"active", "", ""}, []string{i.State, i.Paused, i.PauseNote})
	for _, verb := range []string{"pause", "resume", "trigger"} {
		f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "POST", "/schedules/b/"+verb, "")
	}
}

// The reply to a trigger has the path of its timer, and that path works in the routes of timers.
func TestTriggeredTimers(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.do("PUT", "/schedules/order%2F7", nightly)
	trigger := func() string {
		r := f.result("POST", "/schedules/order%2F7/trigger", "")
		require.Equal(t, []string{"order/7", "triggered", "2030-01-02T13:00:00+01:00"}, []string{r.Key, r.Result, r.Planned})
		require.Contains(t, r.Path, "/timers/order%2F7%00")
		return r.Path
	}
	const text = "order/7 @ 2030-01-02T12:00:00Z (trigger)"
	path := trigger()
	for _, i := range []wire.Info{f.page("/timers").Timers[0], func() (i wire.Info) {
		_, reply := f.do("GET", path, "")
		require.NoError(t, json.Unmarshal([]byte(reply), &i))
		return i
	}()} {
		require.Equal(t, []string{text, path, "order/7", "2030-01-02T12:00:00Z", "waiting"}, []string{i.Key, i.Path, i.Schedule, i.Planned, i.State})
	}
	require.Equal(t, []wire.Occurrence{{Path: path, Planned: "2030-01-02T13:00:00+01:00", Requested: "trigger", State: "waiting"}}, f.schedule("/schedules/order%2F7").Last)
	f.expect(200, `{"key":"`+text+`","result":"moved"}`, "PATCH", path, `{"after":"1h"}`)
	f.expect(200, `{"key":"`+text+`","result":"cancelled"}`, "DELETE", path, "")

	path = trigger()
	require.Equal(t, text, durable.KeyText(f.claim("order/7").Key))
	o := f.schedule("/schedules/order%2F7").Last[0]
	require.Equal(t, []string{"running", "2030-01-02T13:00:00.000+01:00", "1"}, []string{o.State, o.Begun, fmt.Sprint(o.Attempts)})
	f.expect(202, `{"key":"`+text+`","result":"running"}`, "DELETE", path, "")

	path = trigger()
	lease := f.claim("order/7")
	f.now = f.now.Add(2 * time.Second)
	f.end(lease, store.DeadLetter, "HTTP 410")
	require.Equal(t, wire.Occurrence{
		Path: path, Planned: "2030-01-02T13:00:00+01:00", Requested: "trigger", State: "dead",
		Begun: "2030-01-02T13:00:00.000+01:00", Ended: "2030-01-02T13:00:02.000+01:00", Attempts: 1, Error: "HTTP 410",
	}, f.schedule("/schedules/order%2F7").Last[0])
	dead := f.page("/dead").Timers[0]
	require.Equal(t, []string{text, path, "order/7", "dead"}, []string{dead.Key, dead.Path, dead.Schedule, dead.State})
	requeue := strings.Replace(path, "/timers/", "/dead/", 1)
	f.expect(200, `{"key":"`+text+`","result":"requeued"}`, "POST", requeue, "")
	f.end(f.claim("order/7"), store.DeadLetter, "again")
	f.expect(200, `{"key":"`+text+`","result":"purged"}`, "DELETE", requeue, "")
	f.expect(404, `{"key":"`+text+`","result":"absent"}`, "DELETE", requeue, "")
}

func TestBackfill(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.do("PUT", "/schedules/a", `{"every":"1h",`+callback+`}`)
	f.expect(200, `{"key":"a","result":"backfilled","count":3}`, "POST", "/schedules/a/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T13:00:00+01:00"}`)
	f.expect(200, `{"key":"a","result":"backfilled","count":0}`, "POST", "/schedules/a/backfill", `{"from":"2030-01-02T10:01:00Z","to":"2030-01-02T10:02:00Z"}`)
	require.Equal(t, wire.Counts{Backfilled: 3}, f.schedule("/schedules/a").Counts)
	require.Equal(t, "a @ 2030-01-02T10:00:00Z (backfill)", f.page("/timers").Timers[0].Key)
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T13:00:00+01:00"}`)

	// A backfill that fails half-way reports how many occurrences it created.
	f.server.o.Timers = timersOn(t, &swapOnce{Store: f.store})
	status, reply := f.do("POST", "/schedules/a/backfill", `{"from":"2029-12-01T00:00:00Z","to":"2030-01-01T00:00:00Z"}`)
	require.Equal(t, 502, status)
	require.Contains(t, reply, `"count":100}`)
}

// swapOnce is a store whose plans can be changed only once.
type swapOnce struct {
	store.Store
	swapped bool
}

func (s *swapOnce) SwapPlans(ctx context.Context, shard int, swaps []store.PlanSwap, take store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	if s.swapped {
		return nil, nil, store.Horizon{}, errors.New("the disk has gone")
	}
	s.swapped = true
	return s.Store.SwapPlans(ctx, shard, swaps, take)
}

func TestDeleteSchedule(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, c := range []struct {
		query                  string
		cancelled, left, again int
	}{{"", 0, 2, 2}, {"?occurrences=keep", 0, 2, 2}, {"?occurrences=", 0, 2, 2}, {"?occurrences=cancel", 2, 0, 0}} {
		f.do("PUT", "/schedules/a", nightly)
		f.result("POST", "/schedules/a/trigger", "")
		f.result("POST", "/schedules/a/trigger", "")
		f.expect(200, fmt.Sprintf(`{"key":"a","result":"deleted","cancelled":%d}`, c.cancelled), "DELETE", "/schedules/a"+c.query, "")
		require.Len(t, f.page("/timers").Timers, c.left, c.query)
		f.expect(404, `{"key":"a","result":"not found","cancelled":0}`, "DELETE", "/schedules/a", "")
		f.expect(404, fmt.Sprintf(`{"key":"a","result":"not found","cancelled":%d}`, c.again), "DELETE", "/schedules/a?occurrences=cancel", "")
		require.Empty(t, f.page("/timers").Timers)
	}
}

// The list is in order of keys, over all shards, and has each schedule once, for any page size.
func TestListSchedules(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(200, `{"schedules":[]}`, "GET", "/schedules", "")
	for i := range 23 {
		f.do("PUT", fmt.Sprintf("/schedules/k%02d", i), nightly)
	}
	f.result("POST", "/schedules/k05/trigger", "")
	for _, limit := range []int{1, 7, 23, 24} {
		var keys []string
		pages := 0
		for after := ""; ; pages++ {
			_, reply := f.do("GET", fmt.Sprintf("/schedules?limit=%d&after=%s", limit, after), "")
			var p wire.SchedulePage
			require.NoError(t, json.Unmarshal([]byte(reply), &p))
			for _, s := range p.Schedules {
				keys = append(keys, s.Key)
				require.Len(t, s.Next, 10)
				require.Nil(t, s.Last)
				require.Nil(t, s.Callback)
			}
			if after = p.Next; after == "" {
				break
			}
			require.Len(t, p.Schedules, limit)
		}
		require.Len(t, keys, 23)
		require.IsIncreasing(t, keys)
		require.Equal(t, 22/limit, pages)
	}
	require.Len(t, f.page("/timers").Timers, 1, "plans are not in the list of timers")
	require.Empty(t, f.page("/dead").Timers)
}

func TestPreview(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	// The hour from 2:00 is skipped in spring and repeated in autumn.
	f.expect(200, `{"next":["2030-03-30T02:30:00+01:00","2030-03-31T03:00:00+02:00","2030-04-01T02:30:00+02:00"]}`, "POST", "/schedules/preview",
		`{"cron":"30 2 * * *","zone":"Europe/Berlin","from":"2030-03-29T12:00:00Z","count":3}`)
	f.expect(200, `{"next":["2030-10-26T02:30:00+02:00","2030-10-27T02:30:00+02:00","2030-10-28T02:30:00+01:00"]}`, "POST", "/schedules/preview",
		`{"cron":"30 2 * * *","zone":"Europe/Berlin","from":"2030-10-25T12:00:00Z","count":3}`)
	f.expect(200, `{"next":["2030-01-01T00:03:00Z","2030-01-01T00:18:00Z"]}`, "POST", "/schedules/preview",
		`{"every":"15m","offset":"3m","start":"2030-01-01T00:00:00Z","end":"2030-01-01T00:20:00Z","from":"2020-01-01T00:00:00Z"}`)
	f.expect(200, `{"next":["2030-01-01T00:15:00Z"]}`, "POST", "/schedules/preview", `{"every":"15m","limit":1,"from":"2030-01-01T00:00:00Z"}`)
	status, reply := f.do("POST", "/schedules/preview", `{"cron":"* 0 * * *","count":1000}`)
	require.Equal(t, 200, status)
	var p wire.Planned
	require.NoError(t, json.Unmarshal([]byte(reply), &p))
	require.Len(t, p.Next, 1000)
	require.Contains(t, p.Warning, "60 times")
	first, err := time.Parse(time.RFC3339, p.Next[0])
	require.NoError(t, err)
	require.True(t, first.After(time.Now()))
	_, reply = f.do("POST", "/schedules/preview", `{"every":"1h"}`)
	require.NoError(t, json.Unmarshal([]byte(reply), &p))
	require.Len(t, p.Next, 10)
}

// Each error has the field's JSON name, its value and its range.
func TestScheduleErrors(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	long := strings.Repeat("a", 61440)
	const cron = `"cron":"0 0 * * *",`
	for _, c := range []struct{ body, field, value, must string }{
		{`{` + callback + `}`, "cron", "absent", "five fields such as 30 2 * * 1-5, or every must be a duration such as 15m"},
		{`{` + cron + `"every":"1h",` + callback + `}`, "every", `"1h"`, "absent with cron"},
		{`{` + cron + `"offset":"1h",` + callback + `}`, "offset", `"1h"`, "absent without every"},
		{`{"every":"1h","zone":"UTC",` + callback + `}`, "zone", `"UTC"`, "absent without cron: every follows UTC"},
		{`{"every":"1",` + callback + `}`, "every", `"1"`, "a duration such as 1m30s"},
		{`{"every":"0s",` + callback + `}`, "every", `"0s"`, "1s to 87600h0m0s"},
		{`{"every":"1h","offset":"x",` + callback + `}`, "offset", `"x"`, "a duration such as 1m30s"},
		{`{"every":3600,` + callback + `}`, "every", "a JSON number", "a JSON string"},
		{`{` + cron + `"zone":"Mars/Olympus",` + callback + `}`, "zone", `"Mars/Olympus"`, "an IANA name that this process knows"},
		{`{` + cron + `"zone":"Local",` + callback + `}`, "zone", `"Local"`, "an IANA name: all processes must agree on it"},
		{`{` + cron + `"start":"tomorrow",` + callback + `}`, "start", `"tomorrow"`, "a time of RFC 3339 from 1970-01-01T00:00:00Z up to 2262-04-11T23:47:16Z"},
		{`{` + cron + `"end":"1969-12-31T23:59:59Z",` + callback + `}`, "end", `"1969-12-31T23:59:59Z"`, "a time of RFC 3339 from"},
		{`{` + cron + `"start":"2030-01-02T00:00:00Z","end":"2030-01-01T00:00:00Z",` + callback + `}`, "end", `"2030-01-01T00:00:00Z"`, `at or after start, "2030-01-02T00:00:00Z"`},
		{`{` + cron + `"start":"2030-01-02T00:00:01Z","end":"2030-01-02T00:00:02Z",` + callback + `}`, "end", `"2030-01-02T00:00:02Z"`, "at or after the first planned time"},
		{`{` + cron + `"limit":-1,` + callback + `}`, "limit", "-1", "0 (no bound) to 2147483647"},
		{`{` + cron + `"limit":2147483648,` + callback + `}`, "limit", "2147483648", "0 (no bound) to 2147483647"},
		{`{` + cron + `"jitter":"24h",` + callback + `}`, "jitter", `"24h"`, "0 to less than the shortest time between planned times, 24h0m0s"},
		{`{` + cron + `"jitter":"x",` + callback + `}`, "jitter", `"x"`, "a duration such as 1m30s"},
		{`{` + cron + `"overlap":"queue",` + callback + `}`, "overlap", `"queue"`, "skip, buffer_one, cancel or allow"},
		{`{` + cron + `"missed":"first",` + callback + `}`, "missed", `"first"`, "latest, none or all"},
		{`{` + cron + `"catch_up":"0s",` + callback + `}`, "catch_up", `"0s"`, "1s to 87600h0m0s"},
		{`{` + cron + `"catch_up":"1ms",` + callback + `}`, "catch_up", `"1ms"`, "1s to 87600h0m0s"},
		{`{` + cron + `"catch_up":"x",` + callback + `}`, "catch_up", `"x"`, "a duration such as 1m30s"},
		{`{` + cron + `"pause_on_dead":1,` + callback + `}`, "pause_on_dead", "a JSON number", "a JSON boolean"},
		{`{` + cron + `"topic":"` + strings.Repeat("t", 129) + `",` + callback + `}`, "topic", "129 bytes long", "at most 128 bytes long"},
		{`{` + cron + `"body":"` + long + `",` + callback + `}`, "body", "61489 bytes long as an encoded call", "at most 61440"},
		{`{` + cron + `"body":"a","body_base64":"YQ==",` + callback + `}`, "body_base64", "1 bytes long", "absent beside body"},
		{`{` + cron + `"callback":{"url":"ftp://a"}}`, "callback.url", `"ftp://a"`, "an absolute URL with http or https"},
		{`{"cron":"0 0 * * *"}`, "callback", "absent", "an object with at least a url"},
		{`{` + cron + `"key":"a",` + callback + `}`, "key", "a field", "absent: there is no such field"},
	} {
		status, reply := f.do("PUT", "/schedules/a", c.body)
		require.Equal(t, 400, status, c.body+reply)
		e := failure(t, reply)
		require.Equal(t, []string{"invalid", c.field, c.value}, []string{e.Code, e.Field, e.Value})
		require.Contains(t, e.Range, c.must)
		require.Equal(t, e.Field+" is "+e.Value+", must be "+e.Range, e.Message)
	}
	for message, c := range map[string]struct{ body, field, value, must string }{
		`cron: field 2 (hour) is "25", must be 0 to 23`: {
			`{"cron":"0 25 * * *",` + callback + `}`, "cron", `"0 25 * * *"`, "0 to 23",
		},
		`cron: "0 0 * *" has 4 fields, must have 5: minute, hour, day of month, month, day of week`: {
			`{"cron":"0 0 * *",` + callback + `}`, "cron", `"0 0 * *"`, "have 5: minute, hour, day of month, month, day of week",
		},
		"cron: Every.Offset is 2h0m0s, must be 0 to below the period, 1h0m0s": {
			`{"every":"1h","offset":"2h",` + callback + `}`, "offset", `"2h"`, "0 to below the period, 1h0m0s",
		},
	} {
		for _, route := range []string{"PUT /schedules/a", "POST /schedules/preview"} {
			method, path, _ := strings.Cut(route, " ")
			body := c.body
			if method == "POST" {
				body = strings.Replace(body, ","+callback, "", 1)
			}
			status, reply := f.do(method, path, body)
			require.Equal(t, 400, status, reply)
			require.Equal(t, wire.Error{Code: "invalid", Message: message, Field: c.field, Value: c.value, Range: c.must}, failure(t, reply))
		}
	}
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "GET", "/schedules/a", "")

	f.do("PUT", "/schedules/b", `{"every":"1s",`+callback+`}`)
	at481 := "/schedules/" + strings.Repeat("a", 481)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/schedules/b", strings.Repeat(" ", MaxRequest+1), 413, `"range":"at most 262144 bytes long"`},
		{"PUT", at481, nightly, 400, `key is 481 bytes long, must be 1 to 480 bytes long`},
		{"GET", at481, "", 400, `key is 481 bytes long`},
		{"DELETE", at481, "", 400, `key is 481 bytes long`},
		{"POST", at481 + "/pause", "", 400, `key is 481 bytes long`},
		{"POST", at481 + "/trigger", "", 400, `key is 481 bytes long`},
		{"POST", at481 + "/backfill", "{}", 400, `key is 481 bytes long`},
		{"GET", "/schedules/a%00", "", 400, `key is \"a\\x00\", must be without zero bytes`},
		{"GET", "/schedules/", "", 400, `key is 0 bytes long`},
		{"GET", "/schedules?limit=0", "", 400, `limit is \"0\", must be 1 to 500`},
		{"DELETE", "/schedules/b?occurrences=all", "", 400, `occurrences is \"all\", must be keep or cancel`},
		{"DELETE", "/schedules/b?force=1", "", 400, `force is a parameter, must be absent: there is occurrences`},
		{"POST", "/schedules/b/pause", `{"note":"` + strings.Repeat("n", 257) + `"}`, 400, `note is 257 bytes long, must be at most 256 bytes long`},
		{"POST", "/schedules/b/pause", `{"notes":""}`, 400, `notes is a field, must be absent`},
		{"POST", "/schedules/b/resume", `{"note":""}`, 400, `note is a field, must be absent`},
		{"POST", "/schedules/b/trigger", `{"at":""}`, 400, `at is a field, must be absent`},
		{"POST", "/schedules/b/pause", `{`, 400, `bad_json`},
		{"POST", "/schedules/b/backfill", "", 400, `bad_json`},
		{"POST", "/schedules/b/backfill", `{"until":""}`, 400, `until is a field`},
		{"POST", "/schedules/b/backfill", `{"to":"2030-01-02T10:00:00Z"}`, 400, `from is absent, must be a time such as`},
		{"POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z"}`, 400, `to is absent, must be a time such as`},
		{"POST", "/schedules/b/backfill", `{"from":"x","to":"2030-01-02T10:00:00Z"}`, 400, `from is \"x\", must be a time of RFC 3339`},
		{"POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T09:00:00Z"}`, 400, `to is \"2030-01-02T09:00:00Z\", must be at or after from, \"2030-01-02T10:00:00Z\"`},
		{"POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T13:00:00Z"}`, 400, `"field":"to","value":"\"2030-01-02T13:00:00Z\"","range":"not be after the engine's present, 2030-01-02 12:00:00 +0000 UTC"`},
		{"POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T11:00:00Z"}`, 400, `3601 planned times are between`},
		{"POST", "/schedules/preview", `{"every":"1h","count":0}`, 400, `count is 0, must be 1 to 1000`},
		{"POST", "/schedules/preview", `{"every":"1h","count":1001}`, 400, `count is 1001, must be 1 to 1000`},
		{"POST", "/schedules/preview", `{"every":"1h","from":"x"}`, 400, `from is \"x\", must be a time of RFC 3339`},
		{"POST", "/schedules/preview", `{"every":"1h","jitter":"1s"}`, 400, `jitter is a field, must be absent`},
		{"PATCH", "/schedules/b", `{}`, 404, "no_route"},
	} {
		status, reply := f.do(c.method, c.path, c.body)
		require.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, reply)
		require.Contains(t, reply, c.want)
	}
	require.NoError(t, f.store.Close())
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/schedules/b", nightly}, {"GET", "/schedules/b", ""}, {"GET", "/schedules", ""}, {"DELETE", "/schedules/b", ""},
		{"POST", "/schedules/b/pause", ""}, {"POST", "/schedules/b/resume", ""}, {"POST", "/schedules/b/trigger", ""},
		{"POST", "/schedules/b/backfill", `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T10:00:01Z"}`},
	} {
		status, reply := f.do(c.method, c.path, c.body)
		require.Equal(t, 503, status, reply)
	}
	status, _ := f.do("POST", "/schedules/preview", `{"every":"1h"}`)
	require.Equal(t, 200, status, "a preview needs no store")
}

// rewrite changes a plan in the store, as a process of another version can.
func (f *fixture) rewrite(key string, change func(body string) string) {
	f.t.Helper()
	shard := store.ShardOf(key, shards)
	r, err := f.store.Get(f.t.Context(), shard, store.PlanKey(key))
	require.NoError(f.t, err)
	results, _, _, err := f.store.SwapPlans(f.t.Context(), shard, []store.PlanSwap{{Key: r.Key, Expected: r.ID, ID: store.NewID(), Body: []byte(change(string(r.Body))), Due: store.MaxMillis}}, store.SwapClaim{})
	require.NoError(f.t, err)
	require.Equal(f.t, []store.SwapResult{store.Swapped}, results)
}

// A schedule that this process cannot read, or whose zone it does not know, is shown with the
// reason and can be deleted.
func TestProblems(t *testing.T) {
	const backfill = `{"from":"2030-01-02T10:00:00Z","to":"2030-01-02T11:00:00Z"}`
	for problem, c := range map[string]struct {
		change func(string) string
		status map[string]int // of each possible request
	}{
		`durable: schedule "a": Zone is "Europe/Nowher", must be an IANA name that this process knows`: {
			func(body string) string { return strings.Replace(body, "Europe/Berlin", "Europe/Nowher", 1) },
			map[string]int{"pause": 200, "trigger": 200, "backfill": 409, "put": 200},
		},
		`durable: schedule "a" is stored in format 9, this version reads format 1`: {
			func(body string) string { return "\x09" + body[1:] },
			map[string]int{"pause": 409, "trigger": 409, "backfill": 409, "put": 409},
		},
	} {
		f := newFixture(t, store.Limits{}, "")
		f.do("PUT", "/schedules/a", nightly)
		f.rewrite("a", c.change)
		i := f.schedule("/schedules/a")
		require.Equal(t, []string{"problem", problem}, []string{i.State, i.Problem})
		require.Empty(t, i.Next)
		_, reply := f.do("GET", "/schedules", "")
		require.Contains(t, reply, `"state":"problem"`)
		if c.status["put"] == 409 {
			require.Equal(t, wire.Policy{}, i.Policy)
			require.Empty(t, i.ID)
		} else {
			require.Equal(t, "Europe/Nowher", i.Zone)
		}
		for verb, want := range c.status {
			method, path, body := "POST", "/schedules/a/"+verb, ""
			switch verb {
			case "put":
				continue
			case "backfill":
				body = backfill
			}
			status, reply := f.do(method, path, body)
			require.Equal(t, want, status, "%s: %s", verb, reply)
			if status == 409 {
				require.Equal(t, wire.Error{Code: "problem", Message: problem}, failure(t, reply))
			}
		}
		// An error of the request itself is still 400.
		status, reply := f.do("PUT", "/schedules/a", `{"cron":"0 0 * * *","zone":"Europe/Nowher",`+callback+`}`)
		require.Equal(t, 400, status, reply)
		status, reply = f.do("PUT", "/schedules/a", nightly)
		require.Equal(t, c.status["put"], status, reply)
		require.Equal(t, "deleted", f.result("DELETE", "/schedules/a", "").Result)
	}
}

// A worker runs the planned occurrences, GET shows them, and the metrics count the route.
func TestScheduleThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(memstore.Options{Shards: shards})
		require.NoError(t, err)
		f := &fixture{t: t, store: engine}
		timers, err := durable.New(engine, durable.Options{})
		require.NoError(t, err)
		f.server, err = New(Options{Timers: timers, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		results := []error{nil, durable.Discard(errors.New("HTTP 410")), nil}
		worker, err := timers.NewWorker(func(_ context.Context, fired durable.Fired) error {
			result := results[0]
			results = results[1:]
			time.Sleep(1250 * time.Millisecond)
			return result
		}, durable.WorkerOptions{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(ctx) }()

		f.do("PUT", "/schedules/a%2Fb", `{"every":"1h","limit":3,`+callback+`}`)
		time.Sleep(2*time.Hour + 500*time.Millisecond)
		synctest.Wait()
		i := f.schedule("/schedules/a%2Fb")
		require.Equal(t, "active", i.State)
		require.Equal(t, []string{"2000-01-01T03:00:00Z"}, i.Next)
		require.Equal(t, "running", i.Last[0].State)
		listed := f.page("/timers").Timers
		require.Empty(t, listed, "it runs")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		i = f.schedule("/schedules/a%2Fb")
		require.Equal(t, "ended", i.State)
		require.Empty(t, i.Next)
		require.Equal(t, wire.Counts{Created: 3, Done: 2, Dead: 1}, i.Counts)
		require.Len(t, i.Last, 3)
		for n, o := range i.Last {
			at := time.Date(2000, 1, 1, 3-n, 0, 0, 0, time.UTC)
			require.Equal(t, at.Format(time.RFC3339), o.Planned)
			require.Equal(t, fmt.Sprintf("/timers/a%%2Fb%%00%013d", at.UnixMilli()), o.Path)
			require.Regexp(t, `^2000-01-01T0\d:00:00\.0\d\dZ$`, o.Begun)
			require.Regexp(t, `^2000-01-01T0\d:00:01\.2\d\dZ$`, o.Ended)
			require.Equal(t, 1, o.Attempts)
			require.Equal(t, map[bool][]string{true: {"dead", "HTTP 410"}, false: {"done", ""}}[n == 1], []string{o.State, o.Error})
			key, err := url.PathUnescape(o.Path)
			require.NoError(t, err)
			require.Equal(t, at, durable.PlannedTime(strings.TrimPrefix(key, "/timers/")))
		}
		dead := f.page("/dead").Timers
		require.Len(t, dead, 1)
		require.Equal(t, []string{"a/b @ 2000-01-01T02:00:00Z", "a/b", "2000-01-01T02:00:00Z"}, []string{dead[0].Key, dead[0].Schedule, dead[0].Planned})
		require.Equal(t, i.Last[1].Path, dead[0].Path)
		stop()
		<-ran
		require.NoError(t, timers.Shutdown(context.Background()))
	})
}

// Requests about schedules are counted by route pattern.
func TestScheduleRoutesAreCounted(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for range 2 {
		f.do("PUT", "/schedules/a%2Fb", nightly)
		f.do("GET", "/schedules/a%2Fb", "")
		f.do("GET", "/schedules", "")
		f.do("POST", "/schedules/preview", `{"every":"1h"}`)
		for _, verb := range []string{"pause", "resume", "trigger", "backfill"} {
			f.do("POST", "/schedules/a%2Fb/"+verb, "")
		}
		f.do("POST", "/schedules/a%2Fb/stop", "")
		f.do("DELETE", "/schedules/a%2Fb", "")
	}
	counts := map[string]uint64{}
	for _, metric := range f.server.Metrics() {
		if metric.Name == "request_seconds" {
			counts[metric.LabelValue] = metric.Durations.Count
		}
	}
	require.Equal(t, map[string]uint64{
		"PUT /schedules/{key...}": 2, "GET /schedules/{key...}": 2, "GET /schedules": 2, "DELETE /schedules/{key...}": 2,
		"POST /schedules/preview": 2, "POST /schedules/{key}/pause": 2, "POST /schedules/{key}/resume": 2,
		"POST /schedules/{key}/trigger": 2, "POST /schedules/{key}/backfill": 2, "other": 2,
	}, counts)
}
