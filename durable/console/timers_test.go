package console

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
)

func TestOverview(t *testing.T) {
	r := newRig(t, Options{})
	r.dead("no such host", "a", "b")
	r.many("order-", 7)
	o := call[overview](r, 200, "/api/overview", nil)
	require.Equal(t, []int{4, 7, 0, 2}, []int{o.Shards, o.Waiting, o.Running, o.Dead})
	r.engine.set(func(string) error { return errors.New("connection refused") })
	r.refused(503, "/api/overview", nil, "the store does not answer: connection refused")
}

// Each page continues where the previous one ended.
func TestListPages(t *testing.T) {
	r := newRig(t, Options{})
	r.many("order-", 120)
	r.many("other-", 3)
	var texts []string
	next := ""
	for range 3 {
		page := call[listing[timer]](r, 200, "/api/timers?state=waiting&prefix=order-&limit=50&after="+next, nil)
		for _, item := range page.Items {
			texts = append(texts, item.Text)
			require.Equal(t, "waiting", item.State)
			require.Nil(t, item.Body)
		}
		next = page.Next
	}
	require.Empty(t, next)
	require.Len(t, texts, 120)
	require.Equal(t, 123, call[total](r, 200, "/api/count?state=waiting", nil).Count)
	require.Equal(t, 120, call[total](r, 200, "/api/count?state=waiting&prefix=order-", nil).Count)
}

func TestFilters(t *testing.T) {
	r := newRig(t, Options{})
	r.dead("connection REFUSED", "a1", "a2")
	r.dead("no such host", "b1")
	for query, want := range map[string]int{
		"state=dead": 3, "state=dead&error=refused": 2, "state=dead&topic=mails&prefix=a": 2, "state=dead&topic=mail": 0,
		"state=dead&prefix=b&error=HOST": 1, "state=running": 0, "state=waiting": 0,
	} {
		require.Len(t, call[listing[timer]](r, 200, "/api/timers?"+query, nil).Items, want, query)
		require.Equal(t, total{Count: want}, call[total](r, 200, "/api/count?"+query, nil), query)
	}
}

func TestBadQueries(t *testing.T) {
	r := newRig(t, Options{})
	for target, why := range map[string]string{
		"/api/timers":                                       "state is \"\", must be waiting, running or dead",
		"/api/timers?state=leased":                          "state is \"leased\", must be waiting, running or dead",
		"/api/timers?state=dead&limit=201":                  "limit is \"201\", must be 1 to 200",
		"/api/timers?state=dead&limit=x":                    "limit is \"x\", must be 1 to 200",
		"/api/timers?state=dead&after=x":                    "after is \"x\", must be the next of a reply",
		"/api/timers?state=dead&prefix=" + repeat("x", 513): "Query.Prefix is 513 bytes long, must be at most 512",
		"/api/timers?state=dead&topic=" + repeat("x", 129):  "Query.Topic is 129 bytes long, must be at most 128",
		"/api/timers?state=dead&schedule=!":                 "key is \"!\", must be base64url",
		"/api/timers?state=dead&schedule=YQ&prefix=a":       "prefix is \"a\", must be empty with a schedule",
		"/api/count?state=x":                                "state is \"x\"",
		"/api/timer?key=":                                   "a timer's key is 0 bytes long, must be 1 to 512",
		"/api/timer?key=YQA":                                "ends with a zero byte",
		"/api/schedule?key=YQA":                             "byte 1 of the schedule's key",
		"/api/schedules?limit=0":                            "limit is \"0\", must be 1 to 200",
	} {
		r.refused(400, target, nil, why)
	}
	r.refused(404, "/api/timer?key=YQ", nil, "no timer or schedule has this key")
	r.refused(404, "/api/bulk/x", nil, "has the id \"x\"")
}

// A key of any bytes reaches the engine unchanged, and is shown as text.
func TestAnyKey(t *testing.T) {
	r := newRig(t, Options{})
	for key, text := range map[string]string{
		"<script>alert(1)</script>": "<script>alert(1)</script>", "\xff/a": `\xff/a`, "a b\n": "a b\n", "ä": "ä", repeat("k", 512): repeat("k", 512),
	} {
		r.schedule(durable.Timer{Key: key, After: time.Hour, Body: []byte{0, 255}})
		got := call[timer](r, 200, "/api/timer?key="+key64(key), nil)
		require.Equal(t, text, got.Text)
		require.Equal(t, rawKey(key), got.Key)
		require.Equal(t, &body{Bytes: 2, Base64: base64.StdEncoding.EncodeToString([]byte{0, 255})}, got.Body)
		reply := call[actionReply](r, 200, "/api/timers/cancel", object{"keys": keys64(key)})
		require.Equal(t, 1, reply.Changed)
	}
	require.Zero(t, r.stats().Waiting)
}

func TestActions(t *testing.T) {
	r := newRig(t, Options{})
	r.dead("no such host", "dead-1", "dead-2", "dead-3")
	r.many("order-", 30)
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)

	reply := call[actionReply](r, 200, "/api/timers/cancel", object{"keys": keys64("order-0000", "order-0001", "none")})
	require.Equal(t, 2, reply.Changed)
	require.Equal(t, result{Key: "none", Text: "none", Result: "not found"}, reply.Results[2])

	require.Equal(t, 1, call[actionReply](r, 200, "/api/timers/reset", object{"keys": keys64("order-0002"), "at": at}).Changed)
	info, err := r.timers.Get(background, "order-0002")
	require.NoError(t, err)
	require.Equal(t, at, info.Due)
	require.Equal(t, 1, call[actionReply](r, 200, "/api/timers/reset", object{"keys": keys64("order-0003")}).Changed)
	require.Equal(t, 1, r.stats().Overdue, "it is due now")

	reply = call[actionReply](r, 200, "/api/timers/requeue", object{"keys": keys64("dead-1", "order-0002", "none")})
	require.Equal(t, 1, reply.Changed)
	require.Equal(t, "requeued", reply.Results[0].Result)
	reply = call[actionReply](r, 200, "/api/timers/purge", object{"keys": keys64("dead-2", "none")})
	require.Equal(t, actionReply{Changed: 1, Of: 2}, reply)

	require.Contains(t, r.log.String(), `action=cancel timers=3 changed=2`)
	require.Contains(t, r.log.String(), `remote=192.0.2.1:1234 client=192.0.2.1 action=reset timers=1 changed=1 key=order-0002`)

	r.engine.set(func(string) error { return errors.New("connection refused") })
	reply = call[actionReply](r, 200, "/api/timers/cancel", object{"keys": keys64("order-0004")})
	require.Equal(t, "failed", reply.Results[0].Result)
	require.Contains(t, reply.Error, "connection refused")
}

func TestBadActions(t *testing.T) {
	r := newRig(t, Options{})
	many := make([]string, 501)
	for i := range many {
		many[i] = key64("k")
	}
	for _, c := range []struct {
		target string
		body   any
		why    string
	}{
		{"/api/timers/cancel", object{}, "keys has 0 keys, must have 1 to 500"},
		{"/api/timers/cancel", object{"keys": many}, "keys has 501 keys, must have 1 to 500"},
		{"/api/timers/cancel", object{"keys": []string{"!"}}, "key is \"!\", must be base64url without padding"},
		{"/api/timers/cancel", object{"keys": keys64("a\x00")}, "ends with a zero byte"},
		{"/api/timers/cancel", object{"keys": keys64("a"), "after_ms": 1}, "must not be set for cancel"},
		{"/api/timers/explode", object{"keys": keys64("a")}, "the action is \"explode\", must be cancel, reset, requeue or purge"},
		{"/api/timers/reset", object{"keys": keys64("a"), "after_ms": -1}, "after_ms is -1, must be 0 to 315360000000"},
		{"/api/timers/reset", object{"keys": keys64("a"), "at": "1950-01-01T00:00:00Z"}, "at is 1950-01-01 00:00:00 +0000 UTC, must be 1970"},
		{"/api/timers/reset", object{"keys": keys64("a"), "at": "2050-01-01T00:00:00Z", "after_ms": 1}, "after_ms is 1, must be 0 with at"},
		{"/api/timers/reset", object{"keys": keys64("a"), "when": 1}, "unknown field"},
		{"/api/timers/reset", []int{1}, "the request's JSON is invalid"},
	} {
		r.refused(http.StatusBadRequest, c.target, c.body, c.why)
	}
	r.refused(http.StatusRequestEntityTooLarge, "/api/timers/cancel", object{"keys": []string{repeat("x", 2<<20)}}, "must be at most 1048576")
}

// With a slow store, a list or a count ends after 5 s with its part so far.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 800)
		slow := func(d time.Duration) {
			r.engine.set(func(call string) error {
				if call == "list" {
					time.Sleep(d)
				}
				return nil
			})
		}
		slow(1900 * time.Millisecond)
		begun := time.Now()
		n := call[total](r, 200, "/api/count?state=waiting&prefix=order", nil)
		require.True(t, n.AtLeast)
		require.Greater(t, n.Count, 64)
		require.Less(t, n.Count, 800)
		require.Less(t, time.Since(begun), 6*time.Second)
		f := call[failure](r, 409, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting", "prefix": "order"}})
		require.Equal(t, fmt.Sprintf("at least %d timers match now: confirm that number", n.Count), f.Message)
		require.True(t, f.AtLeast)

		slow(700 * time.Millisecond)
		seen := map[string]bool{}
		next, partial := "", 0
		for more := true; more; more = next != "" {
			page := call[listing[timer]](r, 200, "/api/timers?state=waiting&limit=200&after="+next, nil)
			for _, item := range page.Items {
				require.False(t, seen[item.Text], item.Text)
				seen[item.Text] = true
			}
			if next = page.Next; page.Partial {
				partial++
			}
		}
		require.Len(t, seen, 800)
		require.NotZero(t, partial)

		// A filter without matches also continues from page to page.
		slow(0)
		r.many("mass-", 8*store.MaxScan)
		slow(700 * time.Millisecond)
		pages := 0
		next = ""
		for more := true; more; more = next != "" {
			page := call[listing[timer]](r, 200, "/api/timers?state=waiting&error=x&after="+next, nil)
			require.Empty(t, page.Items)
			require.Equal(t, page.Next != "", page.Partial)
			next = page.Next
			pages++
		}
		require.Greater(t, pages, 1)

		slow(2 * time.Second)
		r.refused(503, "/api/timers?state=waiting&error=x", nil, "the store has not answered in 5s")
		require.Equal(t, total{AtLeast: true}, call[total](r, 200, "/api/count?state=waiting&error=x", nil))

		// A store that does not answer at all has counted nothing.
		r.engine.set(func(string) error { time.Sleep(6 * time.Second); return context.DeadlineExceeded })
		r.refused(503, "/api/count?state=waiting&error=x", nil, "the store does not answer")
	})
}

// With Decode, the page gets the decoded text instead of the body, with secrets in headers hidden.
func TestDecode(t *testing.T) {
	r := newRig(t, Options{Decode: func(topic string, b []byte) string { return string(b) }})
	for _, c := range []struct {
		body, want string
		hidden     bool
	}{
		{"plain", "plain", false},
		{`{"a": 1}`, `{"a": 1}`, false},
		{
			`{"url":"http://a?b&c","big":12345678901234567890,"Headers":{"Authorization":"Bearer x","X-Api-Key":["k"],"Idempotency-Key":"7"}}`,
			"{\n  \"Headers\": {\n    \"Authorization\": \"(hidden)\",\n    \"Idempotency-Key\": \"7\",\n    \"X-Api-Key\": \"(hidden)\"\n  },\n" +
				"  \"big\": 12345678901234567890,\n  \"url\": \"http://a?b&c\"\n}", true,
		},
		{`[{"call":{"headers":{"cookie":"x"}}}]`, "[\n  {\n    \"call\": {\n      \"headers\": {\n        \"cookie\": \"(hidden)\"\n      }\n    }\n  }\n]", true},
		{`{"headers":{"X-Session-Token":"x"}} more`, `{"headers":{"X-Session-Token":"x"}} more`, false},
	} {
		r.schedule(durable.Timer{Key: "k", After: time.Hour, Body: []byte(c.body)})
		got := call[timer](r, 200, "/api/timer?key="+key64("k"), nil).Body
		require.Equal(t, &body{Bytes: len(c.body), Decoded: c.want, Hidden: c.hidden}, got)
	}
}
