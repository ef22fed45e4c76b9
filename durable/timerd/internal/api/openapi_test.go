package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
)

// spec is openapi.json, and the replies that a test has seen.
type spec struct {
	t    *testing.T
	doc  *openapi3.T
	ops  []operation
	seen map[string]bool // "GET /timers 200"
}

type operation struct {
	routers.Route
	path *regexp.Regexp
}

func (o *operation) name() string { return o.Method + " " + o.Path }

// loadSpec reads the document and makes its replies strict: in the test, a field that the document
// does not have is an error, although clients must accept it.
func loadSpec(t *testing.T) *spec {
	var tree any
	require.NoError(t, json.Unmarshal(openAPI, &tree))
	text, err := json.Marshal(strict(tree, false))
	require.NoError(t, err)
	s := &spec{t: t, seen: map[string]bool{}}
	s.doc, err = openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, s.doc.Validate(t.Context()))
	for path, item := range s.doc.Paths.Map() {
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(path), `\{key\}`, "(.+)") + "$")
		for method, op := range item.Operations() {
			s.ops = append(s.ops, operation{routers.Route{Spec: s.doc, Path: path, PathItem: item, Method: method, Operation: op}, pattern})
		}
	}
	slices.SortFunc(s.ops, func(a, b operation) int { // the more specific path first
		return cmp.Or(len(b.Path)-len(a.Path), strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
	})
	return s
}

// strict returns a part of the document in which each object schema refuses unknown fields, except
// a schema that is combined with others: another one may have these fields.
func strict(node any, part bool) any {
	if items, ok := node.([]any); ok {
		for i, item := range items {
			items[i] = strict(item, part)
		}
		return items
	}
	m, ok := node.(map[string]any)
	if !ok {
		return node
	}
	for name, item := range m {
		switch name {
		case "example", "examples":
		case "schemas":
			for name, schema := range item.(map[string]any) {
				item.(map[string]any)[name] = strict(schema, true)
			}
		default:
			m[name] = strict(item, name == "allOf")
		}
	}
	ref, _ := m["$ref"].(string)
	_, union := m["allOf"]
	_, object := m["properties"]
	_, open := m["additionalProperties"]
	switch {
	case part || open:
	case strings.HasPrefix(ref, "#/components/schemas/"):
		return map[string]any{"allOf": []any{m}, "unevaluatedProperties": false}
	case union || object:
		m["unevaluatedProperties"] = false
	}
	return m
}

// find returns the operation of a request, and its key.
func (s *spec) find(r *http.Request) (*operation, map[string]string) {
	for i, op := range s.ops {
		m := op.path.FindStringSubmatch(r.URL.EscapedPath())
		if m == nil || op.Method != r.Method {
			continue
		}
		if len(m) == 1 {
			return &s.ops[i], nil
		}
		key, err := url.PathUnescape(m[1])
		require.NoError(s.t, err)
		return &s.ops[i], map[string]string{"key": key}
	}
	require.Fail(s.t, "the document has no operation for "+r.Method+" "+r.URL.Path)
	return nil, nil
}

// exchange sends a request, and fails unless the document allows the reply. It returns the status,
// and an error if the document does not allow the request.
func (s *spec) exchange(f *fixture, method, path, body string) (status int, refused error) {
	s.t.Helper()
	r := f.request(method, path, body)
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	op, params := s.find(r)
	copied := r.Clone(context.Background())
	copied.Body = io.NopCloser(strings.NewReader(body))
	input := &openapi3filter.RequestValidationInput{
		Request: copied, PathParams: params, Route: &op.Route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, RejectWhenRequestBodyNotSpecified: true},
	}
	refused = openapi3filter.ValidateRequest(s.t.Context(), input)
	for name := range copied.URL.Query() {
		if op.Operation.Parameters.GetByInAndName("query", name) == nil && refused == nil {
			refused = fmt.Errorf("no query parameter %s", name)
		}
	}
	w := f.serve(r)
	err := openapi3filter.ValidateResponse(s.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	require.NoError(s.t, err, "%s %s: %d %s", method, path, w.Code, w.Body)
	code := strconv.Itoa(w.Code)
	if op.Operation.Responses.Value(code) == nil {
		code = code[:1] + "XX"
	}
	s.seen[op.name()+" "+code] = true
	return w.Code, refused
}

// The document has exactly the routes of the server, and says which need no token.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	s := loadSpec(t)
	f := newFixture(t, store.Limits{}, token)
	f.server.o.Metrics = http.NotFoundHandler()
	open := map[string]bool{}
	for _, r := range f.server.routes() {
		open[strings.Replace(r.pattern, "{key...}", "{key}", 1)] = r.open
	}
	documented := map[string]bool{}
	for _, op := range s.ops {
		security := op.Operation.Security
		documented[op.name()] = security != nil && len(*security) == 0
	}
	require.Equal(t, open, documented)
}

// GET /openapi.json is the document.
func TestOpenAPIIsServed(t *testing.T) {
	f := newFixture(t, store.Limits{}, token)
	w := f.serve(f.request("GET", "/openapi.json", ""))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.JSONEq(t, string(openAPI), w.Body.String())
}

// The document allows each reply, and exactly the requests that the server does not answer with
// 400. The test covers every status of every operation.
func TestOpenAPI(t *testing.T) {
	s := loadSpec(t)
	f := newFixture(t, store.Limits{}, "")
	broken := false
	var err error
	f.server, err = New(Options{Timers: f.server.o.Timers, Logger: f.server.o.Logger, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprintln(w, "limbo_timers 0")
	})})
	require.NoError(t, err)
	is := func(status int, method, path, body string) {
		t.Helper()
		got, refused := s.exchange(f, method, path, body)
		require.Equal(t, status, got, "%s %s %s", method, path, body)
		if status == 400 {
			require.Error(t, refused, "%s %s %s", method, path, body)
		} else {
			require.NoError(t, refused, "%s %s %s", method, path, body)
		}
	}
	claim := func(key string) store.Lease {
		f.now = f.now.Add(48 * time.Hour)
		return f.claim(key)
	}
	soon := `{"after":"1m30s",` + callback + `}`
	full := `{"at":"2031-01-02T12:00:00.5+01:00","topic":"orders","callback":{"url":"https://example.com/done?a&b","method":"PUT","headers":{"X-A":"b"},"timeout":"5s"},"body":"{\"a\":1}"}`

	// Timers, in all states.
	is(201, "PUT", "/timers/order%2F7", full)
	is(200, "GET", "/timers/order%2F7", "")
	is(200, "PUT", "/timers/order%2F7", `{"key":"order/7","after":"0s",`+callback+`,"body_base64":"AP8="}`)
	is(409, "PUT", "/timers/order%2F7", `{"after":"1h","if_absent":true,`+callback+`}`)
	is(200, "PATCH", "/timers/order%2F7", `{"after":"0s"}`)
	is(200, "PATCH", "/timers/order%2F7", `{"at":"2030-01-03T12:00:00Z"}`)
	lease := claim("order/7")
	is(200, "PUT", "/timers/order%2F7", soon)
	is(200, "GET", "/timers/order%2F7", "")
	is(409, "PATCH", "/timers/order%2F7", `{"after":"1h"}`)
	is(202, "DELETE", "/timers/order%2F7", "")
	is(200, "GET", "/timers/order%2F7", "")
	f.end(lease, store.Done, "")
	is(201, "PUT", "/timers/order%2F7", soon)
	is(200, "DELETE", "/timers/order%2F7", "")
	is(404, "DELETE", "/timers/order%2F7", "")
	is(404, "GET", "/timers/order%2F7", "")
	is(404, "PATCH", "/timers/order%2F7", `{"after":"1h"}`)
	is(200, "POST", "/timers", `{"timers":[{"key":"a","after":"1h",`+callback+`},{"key":"b","at":"2031-01-02T13:00:00Z",`+callback+`,"if_absent":true}]}`)
	is(200, "GET", "/timers", "")
	is(200, "GET", "/timers?limit=1", "")
	for _, state := range []string{"waiting", "leased", "dead"} {
		is(200, "GET", "/timers?state="+state, "")
	}
	is(200, "GET", "/timers?limit=500&after="+f.page("/timers?limit=1").Next, "")

	is(200, "DELETE", "/timers/a", "")
	is(200, "DELETE", "/timers/b", "")

	// Dead letters.
	for _, key := range []string{"dead", "dead-too"} {
		is(201, "PUT", "/timers/"+key, `{"after":"0s","topic":"t",`+callback+`}`)
		f.end(claim(key), store.DeadLetter, "status 404")
	}
	is(200, "GET", "/timers/dead", "")
	is(200, "GET", "/dead?limit=1", "")
	is(200, "POST", "/dead/dead", "")
	is(409, "POST", "/dead/dead", "")
	is(404, "POST", "/dead/none", "")
	is(200, "DELETE", "/dead/dead-too", "")
	is(404, "DELETE", "/dead/dead-too", "")

	// Schedules, and their occurrences.
	daily := `{"cron":"30 2 * * *","zone":"Europe/Berlin","start":"2030-01-01T00:00:00Z","end":"2031-01-01T00:00:00Z","limit":900,"jitter":"1m","overlap":"allow","missed":"all","catch_up":"36h","pause_on_dead":true,"topic":"reports",` + callback + `,"body":"all"}`
	is(201, "PUT", "/schedules/a%2Fb", daily)
	is(200, "PUT", "/schedules/a%2Fb", daily)
	is(409, "PUT", "/schedules/a%2Fb", `{"every":"15m","if_absent":true,`+callback+`}`)
	is(200, "PUT", "/schedules/a%2Fb", `{"every":"15m","offset":"3m",`+callback+`,"body_base64":"AP8="}`)
	is(201, "PUT", "/schedules/often", `{"cron":"* 0 * * *",`+callback+`}`) // has a warning
	is(200, "POST", "/schedules/a%2Fb/pause", `{"note":"holidays"}`)
	is(200, "POST", "/schedules/a%2Fb/pause", "")
	is(200, "GET", "/schedules/a%2Fb", "")
	is(200, "POST", "/schedules/a%2Fb/resume", "")
	is(200, "POST", "/schedules/a%2Fb/resume", "{}")
	is(200, "POST", "/schedules/a%2Fb/trigger", "")
	is(200, "POST", "/schedules/a%2Fb/trigger", "{}")
	is(200, "POST", "/schedules/a%2Fb/backfill", `{"from":"2030-01-01T00:00:00Z","to":"2030-01-01T01:00:00Z"}`)
	f.end(claim("a/b"), store.Done, "")
	f.end(claim("a/b"), store.DeadLetter, "status 404")
	f.claim("a/b")
	is(200, "GET", "/schedules/a%2Fb", "")
	is(200, "GET", "/schedules", "")
	is(200, "GET", "/schedules?limit=1", "")
	is(200, "GET", "/timers", "")
	is(200, "GET", "/dead", "")
	is(200, "POST", "/schedules/preview", `{"cron":"30 2 * * 1-5","zone":"Europe/Berlin","from":"2030-03-29T00:00:00Z","count":3}`)
	is(200, "POST", "/schedules/preview", `{"cron":"* 0 * * *"}`)
	is(200, "POST", "/schedules/preview", `{"every":"15m","limit":1,"start":"2030-01-01T00:00:00Z","from":"2031-01-01T00:00:00Z"}`)
	is(200, "DELETE", "/schedules/a%2Fb?occurrences=keep", "")
	is(404, "DELETE", "/schedules/a%2Fb?occurrences=cancel", "")
	is(404, "GET", "/schedules/none", "")
	for verb, body := range map[string]string{"pause": "", "resume": "", "trigger": "", "backfill": `{"from":"2030-01-01T00:00:00Z","to":"2030-01-01T01:00:00Z"}`} {
		is(404, "POST", "/schedules/none/"+verb, body)
		f.do("PUT", "/schedules/problem", nightly)
		f.rewrite("problem", func(body string) string { return "\x09" + body[1:] })
		is(200, "GET", "/schedules/problem", "")
		is(409, "POST", "/schedules/problem/"+verb, body)
		is(409, "PUT", "/schedules/problem", nightly)
		f.do("DELETE", "/schedules/problem", "")
	}

	// The service.
	is(200, "GET", "/workers", "")
	worker, err := f.server.o.Timers.NewWorker(func(context.Context, durable.Fired) error { return nil }, durable.WorkerOptions{})
	require.NoError(t, err)
	f.do("PUT", "/timers/runs", `{"after":"0s",`+callback+`}`)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(ctx) }()
	require.Eventually(t, func() bool { _, reply := f.do("GET", "/workers", ""); return strings.Contains(reply, `"late"`) }, time.Minute, time.Millisecond)
	is(200, "GET", "/workers", "")
	stop()
	require.NoError(t, <-ran)
	for _, path := range []string{"/healthz", "/metrics", "/openapi.json"} {
		is(200, "GET", path, "")
	}
	broken = true
	is(500, "GET", "/metrics", "")

	// Fields that are out of range.
	long := strings.Repeat("k", 600)
	when := func(fields string) string { return `{"after":"1s",` + fields + `}` }
	for _, body := range []string{
		`{`, `[]`, `{}`, `{"after":"1s"}`, `{` + callback + `}`, when(`"at":"2030-01-02T13:00:00Z",` + callback), when(callback + `,"afterwards":"1s"`),
		`{"after":"soon",` + callback + `}`, `{"after":"-5s",` + callback + `}`, `{"after":5,` + callback + `}`, `{"at":"tomorrow",` + callback + `}`,
		when(callback + `,"topic":"` + long + `"`), when(callback + `,"if_absent":1`), when(`"callback":{}`),
		when(`"callback":{"url":"ftp://example.com"}`), when(`"callback":{"url":"http://example.com","method":"HEAD"}`), when(`"callback":{"url":"http://example.com","timeout":"long"}`),
		when(`"callback":{"url":"http://example.com","headers":{"a b":"c"}}`), when(`"callback":{"url":"http://example.com","body":"b"}`),
		when(`"callback":{"url":"http://example.com/` + strings.Repeat("p", 2100) + `"}`), when(callback + `,"body":"` + strings.Repeat("b", 65537) + `"`),
	} {
		is(400, "PUT", "/timers/a", body)
	}
	for _, body := range []string{`{}`, `{"timers":[]}`, `{"timers":[{"after":"1s",` + callback + `}]}`, `{"timers":[{"key":"",` + soon[1:] + `]}`, `{"timers":[{"key":"a","other":1,` + soon[1:] + `]}`} {
		is(400, "POST", "/timers", body)
	}
	for _, path := range []string{"/timers/", "/dead/"} {
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "POST"} {
			if !slices.ContainsFunc(s.ops, func(o operation) bool { return o.name() == method+" "+path+"{key}" }) {
				continue
			}
			is(400, method, path+long, map[string]string{"PUT": soon, "PATCH": `{"after":"1s"}`}[method])
		}
	}
	is(400, "PATCH", "/timers/a", `{"after":"1h","at":"2030-01-02T13:00:00Z"}`)
	is(400, "PATCH", "/timers/a", soon)
	for _, path := range []string{"/timers", "/dead", "/schedules"} {
		for _, query := range []string{"limit=0", "limit=501", "limit=x", "after=*", "state=gone", "before=1"} {
			is(400, "GET", path+"?"+query, "")
		}
	}
	for _, path := range []string{"/timers", "/dead"} {
		for name, most := range map[string]int{"prefix": 512, "topic": 128, "error": 1024} {
			is(400, "GET", path+"?"+name+"="+strings.Repeat("x", most+1), "")
			is(200, "GET", path+"?"+name+"="+strings.Repeat("x", most), "")
		}
	}
	for _, body := range []string{
		`{` + callback + `}`, `{"cron":"* * * * *","every":"1h",` + callback + `}`, `{"every":"1h","zone":"UTC",` + callback + `}`, `{"cron":"@daily","offset":"1h",` + callback + `}`, `{"every":"1h"}`,
		`{"every":"1h","limit":-1,` + callback + `}`, `{"every":"1h","limit":1.5,` + callback + `}`, `{"every":"1h","overlap":"both",` + callback + `}`, `{"every":"1h","missed":"some",` + callback + `}`,
		`{"every":"1h","jitter":"x",` + callback + `}`, `{"every":"1h","start":"x",` + callback + `}`, `{"every":"1h","after":"1h",` + callback + `}`, `{"cron":"` + long + `",` + callback + `}`,
	} {
		is(400, "PUT", "/schedules/a", body)
	}
	for _, body := range []string{`{}`, `{"every":"1h","count":0}`, `{"every":"1h","count":1001}`, `{"every":"1h","from":"x"}`, `{"every":"1h","overlap":"skip"}`} {
		is(400, "POST", "/schedules/preview", body)
	}
	is(400, "DELETE", "/schedules/a?occurrences=some", "")
	is(400, "DELETE", "/schedules/a?keep=1", "")
	is(400, "GET", "/schedules/"+long, "")
	is(400, "POST", "/schedules/a/pause", `{"note":"`+long+`"}`)
	is(400, "POST", "/schedules/a/pause", `{"why":"x"}`)
	is(400, "POST", "/schedules/a/resume", `{"note":"x"}`)
	is(400, "POST", "/schedules/a/trigger", `{"note":"x"}`)
	for _, body := range []string{`{}`, `{"from":"2030-01-01T00:00:00Z"}`, `{"from":"x","to":"y"}`, `{"from":"2030-01-01T00:00:00Z","to":"2030-01-01T01:00:00Z","count":1}`} {
		is(400, "POST", "/schedules/a/backfill", body)
	}

	s.everyOperation(f, soon)
	for _, op := range s.ops {
		for status := range op.Operation.Responses.Map() {
			require.True(t, s.seen[op.name()+" "+status], "%s never has status %s", op.name(), status)
		}
	}
}

// everyOperation sends the requests that all operations refuse alike. At the end it closes the
// store.
func (s *spec) everyOperation(f *fixture, timer string) {
	bodies := map[string]string{
		"PUT /timers/{key}": timer, "PATCH /timers/{key}": `{"after":"1h"}`, "POST /timers": `{"timers":[{"key":"a",` + timer[1:] + `]}`,
		"PUT /schedules/{key}": nightly, "POST /schedules/preview": `{"every":"1h"}`, "POST /schedules/{key}/backfill": `{"from":"2030-01-01T00:00:00Z","to":"2030-01-01T01:00:00Z"}`,
	}
	all := func(status int, response string, header http.Header, body func(*operation) string) {
		s.t.Helper()
		f.header = header
		for _, op := range s.ops {
			if op.Operation.Responses.Value(response) == nil {
				continue
			}
			got, _ := s.exchange(f, op.Method, strings.Replace(op.Path, "{key}", "a", 1), body(&op))
			require.Equal(s.t, status, got, op.name())
		}
	}
	valid := func(op *operation) string { return bodies[op.name()] }
	all(403, "403", http.Header{"Host": {"rebind.example.com"}}, valid)
	all(415, "415", http.Header{"Content-Type": {"text/xml"}}, func(*operation) string { return "{}" })
	all(413, "413", nil, func(op *operation) string {
		if op.name() == "POST /timers" {
			return strings.Repeat(" ", MaxBatch+1)
		}
		return strings.Repeat(" ", MaxRequest+1)
	})
	server := f.server
	var err error
	f.server, err = New(Options{Timers: server.o.Timers, Token: token, Logger: server.o.Logger, Metrics: server.o.Metrics})
	require.NoError(s.t, err)
	all(401, "401", nil, valid)
	f.server = server

	// A web page of another origin gets a reply in plain text.
	f.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	status, _ := s.exchange(f, http.MethodPost, "/timers", bodies["POST /timers"])
	require.Equal(s.t, 403, status)

	f.header = nil
	f.store.Close()
	all(503, "5XX", nil, valid)
	all(503, "503", nil, valid)
}

// The document allows the replies of a batch and of a backfill that fail after some timers.
func TestOpenAPIOfPartialFailures(t *testing.T) {
	s := loadSpec(t)
	for outcome, want := range map[string]struct{ batch, put int }{
		"": {200, 201}, "refused": {200, 507}, "full": {507, 507}, "unsure": {504, 504}, "full, unsure": {504, 504}, "store": {502, 502}, "closed": {503, 503},
	} {
		f := answering(t, map[int]string{0: outcome})
		status, refused := s.exchange(f, "POST", "/timers", fmt.Sprintf(`{"timers":[{"key":%q,"after":"1h",%s},{"key":%q,"after":"1h",%s}]}`, keyIn(0), callback, keyIn(1), callback))
		require.NoError(t, refused)
		require.Equal(t, want.batch, status)
		f = answering(t, map[int]string{0: outcome})
		status, refused = s.exchange(f, "PUT", "/timers/"+keyIn(0), `{"after":"1h",`+callback+`}`)
		require.NoError(t, refused)
		require.Equal(t, want.put, status)
	}
	f := newFixture(t, store.Limits{MaxPending: 2}, "")
	f.do("PUT", "/schedules/a", `{"every":"1h",`+callback+`}`)
	status, refused := s.exchange(f, "POST", "/schedules/a/backfill", `{"from":"2030-01-01T00:00:00Z","to":"2030-01-02T00:00:00Z"}`)
	require.NoError(t, refused)
	require.Equal(t, 507, status)
}
