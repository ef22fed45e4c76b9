package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

const shards = 4

// fixture is a server on the oracle with a clock that stands at noon.
type fixture struct {
	t      *testing.T
	now    time.Time
	store  store.Store
	server *Server
	header http.Header
}

func newFixture(t *testing.T, limits store.Limits, token string) *fixture {
	f := &fixture{t: t, now: noon, header: http.Header{}}
	var err error
	f.store, err = memstore.New(memstore.Options{Shards: shards, Limits: limits, Now: func() time.Time { return f.now }})
	require.NoError(t, err)
	f.server, err = New(Options{Timers: timersOn(t, f.store), Token: token, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return f
}

func timersOn(t *testing.T, s store.Store) *durable.Timers {
	timers, err := durable.New(s, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(timers.Close)
	return timers
}

func (f *fixture) request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:7717"+path, strings.NewReader(body))
	for name, values := range f.header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	return r
}

func (f *fixture) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	return w
}

// do sends a request and returns the status and the reply.
func (f *fixture) do(method, path, body string) (int, string) {
	f.t.Helper()
	w := f.serve(f.request(method, path, body))
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

func (f *fixture) expect(status int, reply string, method, path, body string) {
	f.t.Helper()
	gotStatus, got := f.do(method, path, body)
	require.Equal(f.t, fmt.Sprint(status, " ", reply), fmt.Sprint(gotStatus, " ", got), "%s %s %s", method, path, body)
}

// claim leases the due timer of a key, as a worker does.
func (f *fixture) claim(key string) store.Lease {
	f.t.Helper()
	shard := store.ShardOf(key, shards)
	c, _, err := f.store.Claim(f.t.Context(), shard, store.Claim{Worker: "w", Token: store.NewToken("w"), Max: 1, MaxBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 5})
	require.NoError(f.t, err)
	require.Len(f.t, c.Leases, 1)
	return c.Leases[0]
}

func (f *fixture) end(l store.Lease, kind store.OutcomeKind, text string) {
	f.t.Helper()
	_, _, err := f.store.End(f.t.Context(), store.ShardOf(l.Key, shards), []store.Outcome{{Holder: l.Holder, Kind: kind, Error: text}})
	require.NoError(f.t, err)
}

const callback = `"callback":{"url":"http://example.com/done"}`

func TestPutGetDelete(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(201, `{"key":"order/7","result":"created","due":"2030-01-02T12:01:30.000Z"}`, "PUT", "/timers/order%2F7",
		`{"after":"1m30s","topic":"orders","callback":{"url":"http://example.com/done?a&b","method":"PUT","headers":{"X-A":"b"},"timeout":"5s"},"body":"{\"a\":1}"}`)
	status, reply := f.do("GET", "/timers/order%2F7", "")
	require.Equal(t, 200, status)
	var i wire.Info
	require.NoError(t, json.Unmarshal([]byte(reply), &i))
	require.Len(t, i.ID, 32)
	i.ID = ""
	require.Equal(t, wire.Info{
		Key: "order/7", Path: "/timers/order%2F7", State: "waiting", Topic: "orders", Due: "2030-01-02T12:01:30.000Z",
		Content: wire.Content{
			Callback: &wire.Callback{URL: "http://example.com/done?a&b", Method: "PUT", Headers: map[string]string{"X-A": "b"}, Timeout: "5s"},
			Body:     `{"a":1}`,
		},
	}, i)

	// The timer has the call that the handler makes.
	f.now = noon.Add(90 * time.Second)
	lease := f.claim("order/7")
	call, err := webhook.Decode(lease.Body)
	require.NoError(t, err)
	require.Equal(t, webhook.Call{Method: "PUT", URL: "http://example.com/done?a&b", Headers: map[string]string{"X-A": "b"}, Timeout: 5 * time.Second, Body: []byte(`{"a":1}`)}, call)
	require.Equal(t, "orders", lease.Topic)

	f.expect(200, `{"key":"order/7","result":"succeeds","due":"2030-01-02T12:02:00.000Z"}`, "PUT", "/timers/order%2F7", `{"at":"2030-01-02T13:02:00+01:00",`+callback+`}`)
	_, reply = f.do("GET", "/timers/order%2F7", "")
	require.Contains(t, reply, `"state":"leased"`)
	require.Contains(t, reply, `"lease_end":"2030-01-02T12:02:30.000Z","successor_due":"2030-01-02T12:02:00.000Z"`)

	// D4: the three answers.
	f.expect(202, `{"key":"order/7","result":"running"}`, "DELETE", "/timers/order%2F7", "")
	_, reply = f.do("GET", "/timers/order%2F7", "")
	require.Contains(t, reply, `"cancelled":true`)
	f.end(lease, store.Done, "")
	f.expect(404, `{"key":"order/7","result":"not found"}`, "DELETE", "/timers/order%2F7", "")
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "GET", "/timers/order%2F7", "")
	f.expect(201, `{"key":"a","result":"created","due":"2030-01-02T12:01:30.000Z"}`, "PUT", "/timers/a", `{"after":"0s",`+callback+`}`)
	_, reply = f.do("GET", "/timers/a", "")
	require.Contains(t, reply, `"callback":{"url":"http://example.com/done"}}`) // no field that the request did not have
	f.expect(200, `{"key":"a","result":"cancelled"}`, "DELETE", "/timers/a", "")
}

// D8: scheduling the same key again.
func TestPutAgain(t *testing.T) {
	f := newFixture(t, store.Limits{MaxPending: 1}, "")
	put := func(status int, result, more string) {
		t.Helper()
		gotStatus, reply := f.do("PUT", "/timers/a", `{"after":"1h",`+callback+more+`}`)
		require.Equal(t, status, gotStatus, reply)
		require.Contains(t, reply, result)
	}
	put(201, `"result":"created"`, "")
	put(200, `"result":"replaced"`, "")
	put(409, `{"key":"a","result":"exists"}`, `,"if_absent":true`)
	other := "b"
	for store.ShardOf(other, shards) != store.ShardOf("a", shards) {
		other += "b"
	}
	f.expect(507, `{"error":{"code":"full","message":"durable: no more timers can be held"}}`, "PUT", "/timers/"+other, `{"after":"1h",`+callback+`}`)
	f.now = noon.Add(time.Hour)
	f.end(f.claim("a"), store.DeadLetter, "no")
	put(200, `"result":"replaced dead letter"`, "")
}

// Case 10 and 11: keys and bodies of any bytes.
func TestAnyKeyAndBody(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, key := range []string{"/", "//", "a//b", ".", "..", "../a", "a b", "{x}", "%2F", "?", "#", "ä", "\x01", "\xff\xfe", strings.Repeat("/", store.MaxKey)} {
		path := pathOf(key)
		status, reply := f.do("PUT", path, `{"after":"1h",`+callback+`,"body_base64":"AP8="}`)
		require.Equal(t, 201, status, "%q: %s", key, reply)
		_, err := f.store.Get(t.Context(), store.ShardOf(key, shards), key)
		require.NoError(t, err, "%q", key)
		status, reply = f.do("GET", path, "")
		require.Equal(t, 200, status, "%q: %s", key, reply)
		var i wire.Info
		require.NoError(t, json.Unmarshal([]byte(reply), &i))
		require.Equal(t, path, i.Path)
		require.Equal(t, []byte{0, 255}, i.BodyBase64)
		unescaped, err := url.PathUnescape(strings.TrimPrefix(i.Path, "/timers/"))
		require.NoError(t, err)
		require.Equal(t, key, unescaped)
		status, _ = f.do("DELETE", path, "")
		require.Equal(t, 200, status)
	}
}

// A timer that another program scheduled is shown with its body as it is.
func TestBodyThatIsNoCall(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for body, want := range map[string]string{
		"": `"attempts":0}`, "hello": `"attempts":0,"body":"hello"}`, `{"v":1}`: `"attempts":0,"body":"{\"v\":1}"}`, "a\xff": `"attempts":0,"body_base64":"Yf8="}`,
	} {
		_, err := f.server.o.Timers.Schedule(t.Context(), durable.Timer{Key: "a", Body: []byte(body)})
		require.NoError(t, err)
		_, reply := f.do("GET", "/timers/a", "")
		require.Contains(t, reply, want)
	}
}

func TestReschedule(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(404, `{"key":"a","result":"absent"}`, "PATCH", "/timers/a", `{"after":"1h"}`)
	f.do("PUT", "/timers/a", `{"after":"1h",`+callback+`}`)
	f.expect(200, `{"key":"a","result":"moved"}`, "PATCH", "/timers/a", `{"after":"2h"}`)
	_, reply := f.do("GET", "/timers/a", "")
	require.Contains(t, reply, `"due":"2030-01-02T14:00:00.000Z"`)
	f.expect(200, `{"key":"a","result":"moved"}`, "PATCH", "/timers/a", `{"at":"2030-01-02T12:00:00Z"}`)
	f.claim("a")
	f.expect(409, `{"key":"a","result":"running"}`, "PATCH", "/timers/a", `{"after":"2h"}`)
}

func TestBatch(t *testing.T) {
	f := newFixture(t, store.Limits{MaxPending: 1}, "")
	f.expect(200, `{"timers":[{"key":"a","result":"created","due":"2030-01-02T13:00:00.000Z"},{"key":"a","result":"replaced","due":"2030-01-02T14:00:00.000Z"}]}`,
		"POST", "/timers", `{"timers":[{"key":"a","after":"1h",`+callback+`},{"key":"a","after":"2h",`+callback+`}]}`)
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf(`{"key":"k%d","after":"1h",%s}`, i, callback))
	}
	status, reply := f.do("POST", "/timers", `{"timers":[`+strings.Join(all, ",")+`]}`)
	require.Equal(t, 200, status, reply)
	require.Equal(t, shards-1, strings.Count(reply, `"created"`))
	require.Equal(t, 10-shards+1, strings.Count(reply, `"refused"`))
	f.expect(400, `{"error":{"code":"invalid","message":"timers[1].after is \"x\", must be a duration of 0s or more, such as 1m30s","field":"timers[1].after","value":"\"x\"","range":"a duration of 0s or more, such as 1m30s"}}`,
		"POST", "/timers", `{"timers":[{"key":"b","after":"1h",`+callback+`},{"key":"c","after":"x",`+callback+`}]}`)
	f.expect(404, `{"error":{"code":"not_found","message":"durable: no such timer or schedule"}}`, "GET", "/timers/b", "") // nothing was scheduled
}

// Each error names the field, its value and its range.
func TestErrors(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	long := strings.Repeat("a", store.MaxBody)
	for _, c := range []struct{ body, field, message string }{
		{`{` + callback + `}`, "at", "at is absent, must be a time such as 2030-01-02T15:04:05Z, or after must be a duration such as 1m30s"},
		{`{"at":"2030-01-02T12:00:00Z","after":"1s",` + callback + `}`, "after", `after is "1s", must be absent beside at`},
		{`{"at":"tomorrow",` + callback + `}`, "at", `at is "tomorrow", must be a time of RFC 3339 after 1970-01-01T00:00:00Z and up to 2262-04-11T23:47:16Z`},
		{`{"at":"1970-01-01T00:00:00Z",` + callback + `}`, "at", `at is "1970-01-01T00:00:00Z", must be`},
		{`{"at":"2262-04-12T00:00:00Z",` + callback + `}`, "at", `at is "2262-04-12T00:00:00Z", must be`},
		{`{"after":"-1s",` + callback + `}`, "after", `after is "-1s", must be a duration of 0s or more, such as 1m30s`},
		{`{"after":5,` + callback + `}`, "after", `after is a JSON number, must be a JSON string`},
		{`{"after":"1s"}`, "callback", "callback is absent, must be an object with at least a url"},
		{`{"after":"1s","callback":{}}`, "callback.url", `callback.url is "", must be an absolute URL with http or https`},
		{`{"after":"1s","callback":{"url":"ftp://a"}}`, "callback.url", `callback.url is "ftp://a", must be`},
		{`{"after":"1s","callback":{"url":"http://a","method":"FETCH"}}`, "callback.method", `callback.method is "FETCH", must be GET, POST, PUT, PATCH or DELETE`},
		{`{"after":"1s","callback":{"url":"http://a","timeout":"1h"}}`, "callback.timeout", `callback.timeout is "1h", must be a duration of more than 0s, up to 10m0s`},
		{`{"after":"1s","callback":{"url":"http://a","headers":{"Host":"b"}}}`, "callback.headers", `callback.headers is "Host", must be names that the handler does not set itself`},
		{`{"after":"1s","callback":{"url":"http://a","header":{}}}`, "callback.header", `callback.header is a field, must be absent: there is no such field`},
		{`{"after":"1s",` + callback + `,"topic":"` + strings.Repeat("t", 129) + `"}`, "topic", "topic is 129 bytes long, must be at most 128 bytes long"},
		{`{"after":"1s",` + callback + `,"body":"` + long + `"}`, "body", "body is 65536 bytes long, must be shorter by 49: the encoded call has at most 65536 bytes"},
		{`{"after":"1s",` + callback + `,"body":"a","body_base64":"YQ=="}`, "body_base64", "body_base64 is 1 bytes long, must be absent beside body"},
		{`{"after":"1s",` + callback + `,"key":"b"}`, "key", `key is "b", must be absent, or as in the path`},
	} {
		status, reply := f.do("PUT", "/timers/a", c.body)
		require.Equal(t, 400, status, c.body)
		var e wire.Failure
		require.NoError(t, json.Unmarshal([]byte(reply), &e))
		require.Contains(t, e.Error.Message, c.message)
		require.Equal(t, c.field, e.Error.Field)
		require.Contains(t, e.Error.Message, e.Error.Field+" is "+e.Error.Value+", must be "+e.Error.Range)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/timers/a", `{`, 400, `"code":"bad_json"`},
		{"PUT", "/timers/a", `{"after":"1s",` + callback + `} {}`, 400, "the request is no JSON that is understood: at byte 61 of it, "},
		{"PUT", "/timers/a", strings.Repeat(" ", MaxRequest+1), 413, `"range":"at most 262144 bytes long"`},
		{"POST", "/timers", strings.Repeat(" ", MaxBatch+1), 413, `"range":"at most 8388608 bytes long"`},
		{"POST", "/timers", `{"timers":[]}`, 400, `timers is 0 of them, must be 1 to 500`},
		{"POST", "/timers", `{"timers":[` + strings.Repeat(`{"key":"a","after":"1s",`+callback+`},`, 500) + `{}]}`, 400, `timers is more than 500 of them, must be 1 to 500`},
		{"PUT", "/timers/" + strings.Repeat("a", 513), `{"after":"1s",` + callback + `}`, 400, `key is 513 bytes long, must be 1 to 512 bytes long`},
		{"GET", "/timers/" + strings.Repeat("a", 513), "", 400, `key is 513 bytes long`},
		{"PATCH", "/timers/" + strings.Repeat("a", 513), `{"after":"1s"}`, 400, `key is 513 bytes long`},
		{"DELETE", "/timers/" + strings.Repeat("a", 513), "", 400, `key is 513 bytes long`},
		{"POST", "/dead/" + strings.Repeat("a", 513), "", 400, `key is 513 bytes long`},
		{"DELETE", "/dead/" + strings.Repeat("a", 513), "", 400, `key is 513 bytes long`},
		{"PUT", "/timers/a%00b", `{"after":"1s",` + callback + `}`, 400, `key is \"a\\x00b\", must be without zero bytes`},
		{"GET", "/timers/a%00", "", 400, `key is \"a\\x00\", must be without a zero byte at its end`},
		{"DELETE", "/timers/a%00", "", 400, `must be without a zero byte at its end`},
		{"POST", "/dead/a%00", "", 400, `must be without a zero byte at its end`},
		{"DELETE", "/timers/", "", 400, `key is 0 bytes long, must be 1 to 512 bytes long`},
		{"PATCH", "/timers/a", `{}`, 400, `at is absent`},
		{"GET", "/timers?limit=0", "", 400, `limit is \"0\", must be 1 to 500`},
		{"GET", "/timers?limit=%zz", "", 400, `limit is \"\", must be 1 to 500`},
		{"GET", "/timers?after=%zz", "", 400, `after is \"\", must be what`},
		{"GET", "/timers?limit=501", "", 400, `limit is \"501\", must be 1 to 500`},
		{"GET", "/timers?after=x", "", 400, `after is \"x\", must be what an earlier page has as next`},
		{"GET", "/timers?before=x", "", 400, `before is a parameter, must be absent`},
		{"GET", "/timer", "", 404, `there is no GET \"/timer\"`},
	} {
		status, reply := f.do(c.method, c.path, c.body)
		require.Equal(t, c.status, status, reply)
		require.Contains(t, reply, c.want)
	}
	f.header.Set("Content-Type", "text/xml")
	status, _ := f.do("PUT", "/timers/a", `{"after":"1s",`+callback+`}`)
	require.Equal(t, 415, status)
}

// Each error of the store has its status.
func TestStoreErrors(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	require.NoError(t, f.store.Close())
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/timers/a", `{"after":"1s",` + callback + `}`}, {"GET", "/timers/a", ""}, {"DELETE", "/timers/a", ""},
		{"GET", "/timers", ""}, {"GET", "/dead", ""}, {"GET", "/healthz", ""},
		{"PATCH", "/timers/a", `{"after":"1s"}`}, {"PATCH", "/timers/a", `{"at":"2030-01-02T12:00:00Z"}`},
		{"POST", "/timers", `{"timers":[{"key":"a","after":"1s",` + callback + `}]}`}, {"POST", "/dead/a", ""}, {"DELETE", "/dead/a", ""},
	} {
		status, reply := f.do(c.method, c.path, c.body)
		require.Equal(t, 503, status, reply)
	}
}

// answers is a store whose Schedule fails by shard.
type answers struct {
	store.Store
	of map[int]string
}

var outcomes = map[string]error{
	"full": store.ErrFull, "unsure": store.ErrUnsure, "unconfirmed": store.ErrUnconfirmed, "closed": store.ErrClosed,
	"timeout": context.DeadlineExceeded, "gone": context.Canceled, "store": io.ErrUnexpectedEOF,
	"full, unsure": fmt.Errorf("%w: at maxmemory: %w", store.ErrFull, store.ErrUnsure),
}

func (a *answers) Schedule(ctx context.Context, shard int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	outcome := a.of[shard]
	if outcome == "refused" {
		return []store.Receipt{{Kind: store.Refused}}, store.Horizon{}, nil
	}
	receipts, horizon, err := a.Store.Schedule(ctx, shard, entries)
	if outcomes[outcome] == nil {
		return receipts, horizon, err
	}
	if outcome != "unconfirmed" {
		receipts = nil
	}
	return receipts, horizon, fmt.Errorf("wrapped: %w", outcomes[outcome])
}

func answering(t *testing.T, of map[int]string) *fixture {
	f := newFixture(t, store.Limits{}, "")
	f.server.o.Timers = timersOn(t, &answers{f.store, of})
	return f
}

// keyIn returns a key that belongs to a shard.
func keyIn(shard int) string {
	key := "k"
	for store.ShardOf(key, shards) != shard {
		key += "k"
	}
	return key
}

// If several errors come together, the reply has the status and code of the most important one, and
// the codes of the others.
func TestNoErrorHidesAnother(t *testing.T) {
	for outcome, want := range map[string]string{
		"": "201", "refused": "507 full []", "full": "507 full []", "unsure": "504 unsure []", "unconfirmed": "504 unconfirmed []",
		"closed": "503 closed []", "timeout": "503 timeout []", "gone": "503 timeout []", "store": "502 store []",
		"full, unsure": "504 unsure [full]",
	} {
		f := answering(t, map[int]string{0: outcome})
		status, reply := f.do("PUT", "/timers/"+keyIn(0), `{"after":"1h",`+callback+`}`)
		got := fmt.Sprint(status)
		if status != 201 {
			e := failure(t, reply)
			got = fmt.Sprint(status, " ", e.Code, " ", e.Also)
			if outcomes[outcome] != nil {
				require.Contains(t, e.Message, outcomes[outcome].Error())
			}
		}
		require.Equal(t, want, got, outcome)
	}

	// Batches of three timers, by the answers of the shards of two of them.
	codes := map[string][]string{"": nil, "refused": {"full"}, "gone": {"timeout"}, "full, unsure": {"full", "unsure"}}
	ranks := []string{"unsure", "unconfirmed", "store", "closed", "timeout", "full"}
	statuses := map[string]int{"unsure": 504, "unconfirmed": 504, "store": 502, "closed": 503, "timeout": 503, "full": 507}
	all := []string{"", "refused"}
	for outcome := range outcomes {
		all = append(all, outcome)
		if codes[outcome] == nil {
			codes[outcome] = []string{outcome}
		}
	}
	for _, a := range all {
		for _, b := range all {
			f := answering(t, map[int]string{0: a, 1: b})
			status, reply := f.do("POST", "/timers", fmt.Sprintf(`{"timers":[{"key":%q,"after":"1h",%s},{"key":%q,"after":"1h",%s},{"key":%q,"after":"1h",%s}]}`,
				keyIn(0), callback, keyIn(1), callback, keyIn(2), callback))
			var got wire.Failure
			require.NoError(t, json.Unmarshal([]byte(reply), &got), reply)
			for i, outcome := range []string{a, b, ""} {
				result := map[string]string{"": "created", "refused": "refused", "unconfirmed": "created"}[outcome]
				if result == "" {
					result = "unanswered"
				}
				require.Equal(t, result, got.Timers[i].Result, "%q %q", a, b)
				require.Equal(t, keyIn(i), got.Timers[i].Key)
			}
			var want []string
			for _, code := range ranks {
				if slices.Contains(codes[a], code) || slices.Contains(codes[b], code) {
					want = append(want, code)
				}
			}
			isResult := func(outcome string) bool { return outcome == "" || outcome == "refused" }
			if isResult(a) && isResult(b) {
				require.Equal(t, 200, status, "%q %q", a, b)
				require.Nil(t, got.Error)
				continue
			}
			require.Equal(t, statuses[want[0]], status, "%q %q", a, b)
			require.Equal(t, want, append([]string{got.Error.Code}, got.Error.Also...), "%q %q", a, b)
			for _, outcome := range []string{a, b} {
				if err := outcomes[outcome]; err != nil {
					require.Contains(t, got.Error.Message, err.Error())
				}
			}
		}
	}
}
