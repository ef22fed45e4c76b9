package api

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// failure decodes the error in a reply.
func failure(t *testing.T, reply string) wire.Error {
	t.Helper()
	var e wire.Failure
	require.NoError(t, json.Unmarshal([]byte(reply), &e), reply)
	return *e.Error
}

// Text that is not UTF-8 is refused, with an error that names the field and the alternative.
// Altering it could turn two keys into one.
func TestInvalidUTF8(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, bad := range []string{"\xff", "caf\xe9", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", `\ud800`, `\udc00`, `\uDBFFx`, `\ud800\u0041`, `\ud800\n`, `\ud800\ud800`, `\\\udfff`, "\xc0\x80", `a\u0041\xff`[:7] + "\xff"} {
		for _, c := range []struct{ field, must, timer string }{
			{"key", "valid UTF-8; PUT /timers/{key} takes any bytes but zero bytes, with percent encoding", `"key":"` + bad + `","after":"1h",` + callback},
			{"body", "valid UTF-8; body_base64 takes any bytes", `"body":"` + bad + `","after":"1h",` + callback},
			{"body_base64", "valid UTF-8", `"body_base64":"` + bad + `","after":"1h",` + callback},
			{"topic", "valid UTF-8", `"topic":"` + bad + `","after":"1h",` + callback},
			{"at", "valid UTF-8", `"at":"` + bad + `",` + callback},
			{"after", "valid UTF-8", `"after":"` + bad + `",` + callback},
			{"callback.url", "valid UTF-8; percent encoding takes any bytes", `"after":"1h","callback":{"url":"http://a/` + bad + `"}`},
			{"callback.method", "valid UTF-8", `"after":"1h","callback":{"url":"http://a/","method":"` + bad + `"}`},
			{"callback.timeout", "valid UTF-8", `"after":"1h","callback":{"url":"http://a/","timeout":"` + bad + `"}`},
			{"callback.headers.X", "valid UTF-8", `"after":"1h","callback":{"url":"http://a/","headers":{"X":"` + bad + `"}}`},
		} {
			for prefix, request := range map[string][3]string{
				"":           {"PUT", "/timers/a", "{" + c.timer + "}"},
				"timers[1].": {"POST", "/timers", `{"timers":[{"key":"k","after":"1h",` + callback + `},{` + c.timer + `}]}`},
			} {
				status, reply := f.do(request[0], request[1], request[2])
				require.Equal(t, 400, status, "%q: %s", request[2], reply)
				e := failure(t, reply)
				require.Equal(t, wire.Error{
					Code: "invalid", Field: prefix + c.field, Value: "not valid UTF-8", Range: c.must,
					Message: prefix + c.field + " is not valid UTF-8, must be " + c.must,
				}, e)
			}
		}
		for body, field := range map[string]string{
			`{"after":"1h","callback":{"url":"http://a","headers":{"` + bad + `":"b"}}}`: "a name in callback.headers",
			`{"` + bad + `":"1h"}`: "a name in the request",
		} {
			_, reply := f.do("PUT", "/timers/a", body)
			require.Equal(t, field+" is not valid UTF-8, must be valid UTF-8", failure(t, reply).Message)
		}
	}
	require.Empty(t, f.page("/timers").Timers)
}

// UTF-8 text is kept, with any JSON escapes.
func TestText(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for in, want := range map[string]string{
		`ä€😀`: "ä€😀", `\u00e4\u20AC\ud83d\ude00`: "ä€😀", `\ufffd\uFFFD�`: "\ufffd\ufffd\ufffd", `\"\\\/\b\f\n\r\t\u0000`: "\"\\/\b\f\n\r\t\x00",
		`\\ud800`: `\ud800`, `\\\\u`: `\\u`, `\u2028`: "\u2028", "\u2029": "\u2029", "\x7f": "\x7f", ``: "",
	} {
		f.expect(201, `{"key":"a","result":"created","due":"2030-01-02T13:00:00.000Z"}`, "PUT", "/timers/a", `{"after":"1h",`+callback+`,"body":"`+in+`"}`)
		_, reply := f.do("GET", "/timers/a", "")
		var i wire.Info
		require.NoError(t, json.Unmarshal([]byte(reply), &i))
		require.Equal(t, want, i.Body, in)
		f.do("DELETE", "/timers/a", "")
	}
}

// JSON must have exact names, each once, and nothing after it.
func TestJSON(t *testing.T) {
	const notJSON = "the request is no JSON that is understood: at byte "
	f := newFixture(t, store.Limits{}, "")
	for body, want := range map[string]string{
		``:                                 notJSON,
		` `:                                notJSON,
		`{`:                                notJSON,
		`{,`:                               notJSON,
		`{"after"`:                         notJSON,
		`{"after":`:                        notJSON,
		`{"after":"1h`:                     notJSON,
		`{"after":"1h\`:                    notJSON,
		`{"after":"1h\"`:                   notJSON,
		"{\"after\":\"1\nh\"}":             notJSON,
		`{"after":"\x"}`:                   notJSON,
		`{"after":"\u12"}`:                 notJSON,
		`{"after":"\ud800\u12"}`:           "after is not valid UTF-8",
		`{"after":"\u12x4"}`:               notJSON,
		`{"after":"1h"`:                    notJSON,
		`{"after":"1h" "at":"1h"}`:         notJSON,
		`{"after":"1h",}`:                  notJSON,
		`{"after":"1h"}}`:                  notJSON,
		`{"after":"1h"} {}`:                notJSON,
		`{"after":1h}`:                     "after is a JSON number, must be a JSON string",
		`{"after":9}`:                      "after is a JSON number, must be a JSON string",
		`{"after":0}`:                      "after is a JSON number, must be a JSON string",
		`{"after":-1}`:                     "after is a JSON number, must be a JSON string",
		`{"after":tru}`:                    "after is a JSON boolean, must be a JSON string",
		`{"after":{}}`:                     "after is a JSON object, must be a JSON string",
		`{"after":[]}`:                     "after is a JSON array, must be a JSON string",
		`{"after":nul}`:                    notJSON,
		`{"after":NaN}`:                    notJSON,
		`[]`:                               "the request is a JSON array, must be a JSON object",
		`"a"`:                              "the request is a JSON string, must be a JSON object",
		`{"if_absent":"true"}`:             "if_absent is a JSON string, must be a JSON boolean",
		`{"if_absent":1}`:                  "if_absent is a JSON number, must be a JSON boolean",
		`{"callback":[]}`:                  "callback is a JSON array, must be a JSON object",
		`{"callback":{"headers":{"a":1}}}`: "callback.headers.a is a JSON number, must be a JSON string",
		`{"callback":{"headers":[]}}`:      "callback.headers is a JSON array, must be a JSON object",
		`{"callback":{"headers":{"a":"1","a":"2"}}}`:                    "callback.headers.a is given twice, must be given once",
		`{"callback":{"Url":"http://a"}}`:                               "callback.Url is a field, must be absent: there is no such field",
		`{"after":"1h","after":"2h"}`:                                   "after is given twice, must be given once",
		`{"after":"1h","a\u0066ter":"2h"}`:                              "after is given twice, must be given once",
		`{"after":null,"after":null}`:                                   "after is given twice, must be given once",
		`{"After":"1h"}`:                                                "After is a field, must be absent: there is no such field",
		`{"aft\ner":"1h"}`:                                              `aft\ner is a field, must be absent`,
		`{"` + strings.Repeat("x", 101) + `":"1h"}`:                     strings.Repeat("x", 100) + "… is a field, must be absent",
		`{"body_base64":"YQ"}`:                                          `body_base64 is "YQ", must be base64`,
		`{"body_base64":"Y Q="}`:                                        `body_base64 is "Y Q=", must be base64`,
		`{"after":"` + strings.Repeat("1", 101) + `",` + callback + `}`: `after is "` + strings.Repeat("1", 100) + `…", must be a duration`,
		`{"after":null,"at":null}`:                                      "at is absent",
		`null`:                                                          "at is absent",
		`{}`:                                                            "at is absent",
		`{"after":"1h","callback":null}`:                                "callback is absent",
		" \t\r\n{ \"after\" : \"1h\" , \"callback\" : { } } \n":         `callback.url is ""`,
	} {
		status, reply := f.do("PUT", "/timers/a", body)
		require.Equal(t, 400, status, body)
		require.Contains(t, failure(t, reply).Message, want, body)
	}
	for body, want := range map[string]string{
		`{"timers":{}}`:     "timers is a JSON object, must be a JSON array",
		`{"timers":null}`:   "timers is 0 of them, must be 1 to 500",
		`{}`:                "timers is 0 of them, must be 1 to 500",
		`{"timers":[null]}`: "timers[0].key is 0 bytes long, must be 1 to 512 bytes long",
		`{"timers":[[]]}`:   "timers[0] is a JSON array, must be a JSON object",
		`{"timers":["a"]}`:  "timers[0] is a JSON string, must be a JSON object",
		`{"timers":[`:       notJSON,
		`{"timers":[,]}`:    notJSON,
		`{"timers":[{"key":"a","after":"1h",` + callback + `},]}`:                                          notJSON,
		`{"timers":[{"key":"a","after":"1h",` + callback + `} {"key":"b","after":"1h",` + callback + `}]}`: notJSON,
		`{"timers":[{"key":"a","after":"1h",` + callback + `}`:                                             notJSON,
		`{"timer":[]}`:              "timer is a field, must be absent",
		`{"timers":[],"timers":[]}`: "timers is given twice",
	} {
		status, reply := f.do("POST", "/timers", body)
		require.Equal(t, 400, status, body)
		require.Contains(t, failure(t, reply).Message, want, body)
	}
	f.expect(201, `{"key":"a","result":"created","due":"2030-01-02T13:00:00.000Z"}`, "PUT", "/timers/a",
		"\n{\"key\":null , \"at\":null,\"after\":\"1\\u0068\",\"topic\":null,\"body\":null,\"body_base64\":\"Y\\nQ==\",\"if_absent\":true,"+
			"\"callback\":{\"url\":\"http:\\/\\/a\",\"method\":null,\"headers\":{},\"timeout\":null}}\n")
	_, reply := f.do("PATCH", "/timers/a", `{"after":"1h","topic":"b"}`)
	require.Contains(t, reply, "topic is a field, must be absent")
	f.expect(409, `{"key":"a","result":"exists"}`, "PUT", "/timers/a", `{"after":"1h","if_absent":true,`+callback+`}`)
	f.expect(200, `{"key":"a","result":"replaced","due":"2030-01-02T13:00:00.000Z"}`, "PUT", "/timers/a", `{"after":"1h","if_absent":false,`+callback+`}`)
}

// The error about too many headers names the timer of a batch.
func TestTooManyHeaders(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	headers := `"A":"b"`
	for i := range webhook.MaxHeaders {
		headers += fmt.Sprintf(`,"A%d":"b"`, i)
	}
	timer := func(headers string) string {
		return `{"key":"a","after":"1h","callback":{"url":"http://a","headers":{` + headers + `}}}`
	}
	for prefix, request := range map[string][3]string{
		"":           {"PUT", "/timers/a", timer(headers)},
		"timers[1].": {"POST", "/timers", `{"timers":[` + timer("") + `,` + timer(headers) + `]}`},
	} {
		status, reply := f.do(request[0], request[1], request[2])
		require.Equal(t, 400, status, reply)
		require.Equal(t, wire.Error{
			Code: "invalid", Field: prefix + "callback.headers", Value: "more than 32 of them", Range: "at most 32",
			Message: prefix + "callback.headers is more than 32 of them, must be at most 32",
		}, failure(t, reply))
	}
}

// Decoding any request allocates at most a small multiple of its size.
func TestRequestsAreBoundedBeforeTheyAreDecoded(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	fill := func(n int, before, each, after string) string {
		return before + strings.Repeat(each, max((n-len(before)-len(after))/len(each), 0)) + after
	}
	fillN := func(n int, before string, each func(i int) string, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len()+len(after)+40 < n; i++ {
			b.WriteString(each(i))
		}
		return b.String() + after
	}
	timer := func(n int) map[string]string {
		m := map[string]string{
			"nested arrays":           fill(n, ``, `[`, ``),
			"nested objects":          fill(n, ``, `{"a":`, ``),
			"nested in a field":       fill(n, `{"callback":{"headers":`, `{"a":`, ``),
			"nested in callback":      fill(n, ``, `{"callback":`, ``),
			"nested in an unknown":    fill(n, `{"x":`, `[`, ``),
			"unknown fields":          fillN(n, `{`, func(i int) string { return fmt.Sprintf(`"x%d":1,`, i) }, `"x":1}`),
			"a field again and again": fill(n, `{"key":"a"`, `,"key":"a"`, `}`),
			"wrong types":             fill(n, `{"key":1`, `,"key":1`, `}`),
			"callbacks":               fill(n, `{"callback":{}`, `,"callback":null,"callback":{}`, `}`),
			"headers":                 fillN(n, `{"callback":{"headers":{`, func(i int) string { return fmt.Sprintf(`"%x":"",`, i) }, `"x":""}}}`),
			"headers of numbers":      fillN(n, `{"callback":{"headers":{`, func(i int) string { return fmt.Sprintf(`"%x":1,`, i) }, `"x":""}}}`),
			"an array in body_base64": fill(n, `{"body_base64":[1`, `,1`, `]}`),
			"a number":                fill(n, `{"key":`, `1`, `}`),
			"spaces":                  fill(n, ``, ` `, `{}`),
			"half a string":           fill(n, `{"key":"`, `a`, ``),
			"no JSON":                 fill(n, ``, `a`, ``),
			"a long name":             fill(n, `{"`, `a`, `":1}`),
			"a long header's name":    fill(n, `{"after":"1h","callback":{"url":"http://a","headers":{"`, `a`, `":""}}}`),
			"a long header":           fill(n, `{"after":"1h","callback":{"url":"http://a","headers":{"a":"`, `a`, `"}}}`),
		}
		for _, field := range []string{"key", "at", "after", "topic", "body", "body_base64"} {
			for name, each := range map[string]string{"long": `a`, "escapes": `\n`, "long escapes": `\u0001`, "half surrogates": `\ud800`, "bytes": "\xff", "U+2028": "\u2028"} {
				more := `,"callback":{"url":"http://a"}`
				if field != "after" && field != "at" {
					more += `,"after":"1h"`
				}
				m[field+": "+name] = fill(n, `{"`+field+`":"`, each, `"`+more+`}`)
			}
		}
		for _, field := range []string{"url", "method", "timeout"} {
			m["callback."+field] = fill(n, `{"after":"1h","callback":{"url":"http://a/","`+field+`":"`, `a`, `"}}`)
			if field == "url" {
				m["callback.url"] = fill(n, `{"after":"1h","callback":{"url":"http://a/`, `a`, `"}}`)
			}
		}
		return m
	}
	check := func(name, method, path, body string) {
		size := uint64(len(path) + len(body))
		r := f.request(method, path, body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := f.serve(r)
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		times := uint64(8)
		if w.Code < 300 {
			times = 24 // encodes calls, and the store keeps one
		}
		if got > times*size+32<<10 {
			t.Errorf("%s: %d bytes made the server allocate %d: %.300s", name, size, got, w.Body.String())
		}
	}
	for _, n := range []int{1 << 10, 16 << 10, MaxRequest} {
		for name, body := range timer(n) {
			check("PUT "+name, "PUT", "/timers/a", body)
			check("PATCH "+name, "PATCH", "/timers/a", body)
		}
	}
	for _, n := range []int{1 << 10, 1 << 20} {
		for name, body := range timer(min(n, MaxRequest/4)) {
			check("POST "+name, "POST", "/timers", body)
			check("POST timers of "+name, "POST", "/timers", `{"timers":[`+body+`]}`)
		}
		for name, body := range map[string]string{
			"empty timers":         fill(n, `{"timers":[{}`, `,{}`, `]}`),
			"nulls":                fill(n, `{"timers":[null`, `,null`, `]}`),
			"arrays":               fill(n, `{"timers":[[]`, `,[]`, `]}`),
			"timers in timers":     fill(n, ``, `{"timers":[`, ``),
			"lists of timers":      fill(n, `{"timers":[]`, `,"timers":[]`, `}`),
			"too many good timers": fillN(n, `{"timers":[`, func(i int) string { return `{"key":"a","after":"1h",` + callback + `},` }, `{}]}`),
			"500 long bodies":      fill(n, `{"timers":[{"key":"a","after":"1h","callback":{"url":"http://a"}`, `},{"key":"a","after":"1h","callback":{"url":"http://a"},"body":"`+strings.Repeat("a", 50_000)+`"`, `}]}`),
			"500 long base64":      fill(n, `{"timers":[{"key":"a","after":"1h","callback":{"url":"http://a"}`, `},{"key":"a","after":"1h","callback":{"url":"http://a"},"body_base64":"`+strings.Repeat("abcd", 12_000)+`"`, `}]}`),
			"500 escaped bodies":   fill(n, `{"timers":[{"key":"a","after":"1h","callback":{"url":"http://a"}`, `},{"key":"a","after":"1h","callback":{"url":"http://a"},"body":"`+strings.Repeat(`\n`, 20_000)+`"`, `}]}`),
		} {
			check("POST "+name, "POST", "/timers", body)
		}
	}
	check("POST all that fits of empty timers", "POST", "/timers", fill(MaxBatch, `{"timers":[{}`, `,{}`, `]}`))
	long := strings.Repeat("a", 15_000)
	for _, path := range []string{
		"/timers/" + long, "/dead/" + long, "/" + long, "/timers/" + strings.Repeat("%2F", 5_000), "/timers/" + strings.Repeat("a/", 7_000),
		"/timers?" + long, "/timers?a" + strings.Repeat("&a", 7_000), "/timers?limit=" + long, "/timers?after=" + long,
		"/timers?limit=1" + strings.Repeat("&limit=1", 1_800), "/dead?" + strings.Repeat("&", 15_000), "/timers?" + strings.Repeat("%61", 5_000),
	} {
		for _, method := range []string{"GET", "DELETE", "POST", "PUT", "PATCH"} {
			check(method+" "+path[:20], method, path, "")
		}
	}
}
