package console

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

const secret = "correct horse battery staple"

// Each attack on a change is refused, and changes nothing.
func TestAttacks(t *testing.T) {
	open, locked, named := Options{}, Options{Token: secret}, Options{Hosts: []string{"limbo.example"}}
	set := func(name, value string) func(*http.Request) {
		return func(q *http.Request) {
			switch {
			case name == "Host":
				q.Host = value
			case value == "":
				q.Header.Del(name)
			default:
				q.Header.Set(name, value)
			}
		}
	}
	for _, c := range []struct {
		attack  string
		options Options
		change  []func(*http.Request)
		status  int
		why     string
	}{
		{"none", open, nil, 200, ""},
		{"none, by another loopback name", open, []func(*http.Request){set("Host", "LOCALHOST.:80")}, 200, ""},
		{"none, by IPv6", open, []func(*http.Request){set("Host", "[::1]:80")}, 200, ""},
		{"none, by a known name", named, []func(*http.Request){set("Host", "Limbo.example:80")}, 200, ""},
		{"an old browser", open, []func(*http.Request){set("Sec-Fetch-Site", ""), set("Origin", "http://127.0.0.1:7717")}, 200, ""},
		{"none, by a program without a browser's headers", open, []func(*http.Request){set("Sec-Fetch-Site", "")}, 200, ""},
		{"DNS rebinding", open, []func(*http.Request){set("Host", "evil.example:7717")}, 403, "Host is"},
		{"DNS rebinding to a known name's subdomain", named, []func(*http.Request){set("Host", "a.limbo.example")}, 403, "Host is"},
		{"an address of the network", open, []func(*http.Request){set("Host", "10.1.2.3:7717")}, 403, "Host is"},
		{"no Host", open, []func(*http.Request){set("Host", "")}, 403, "Host is"},
		{"a script of another site", open, []func(*http.Request){set("Sec-Fetch-Site", "cross-site")}, 403, "Sec-Fetch-Site is"},
		{"a script of another port", open, []func(*http.Request){set("Sec-Fetch-Site", "same-site")}, 403, "Sec-Fetch-Site is"},
		{"an old browser on another site", open, []func(*http.Request){set("Sec-Fetch-Site", ""), set("Origin", "https://evil.example")}, 403, "and Origin"},
		{"an old browser on another port", open, []func(*http.Request){set("Sec-Fetch-Site", ""), set("Origin", "http://127.0.0.1:80")}, 403, "and Origin"},
		{"a sandboxed frame", open, []func(*http.Request){set("Sec-Fetch-Site", ""), set("Origin", "null")}, 403, "and Origin"},
		{"a form", open, []func(*http.Request){set(marker, "")}, 403, marker + " is"},
		{"a form's content", open, []func(*http.Request){set("Content-Type", "text/plain")}, 415, "Content-Type is"},
		{"PUT", open, []func(*http.Request){func(q *http.Request) { q.Method = "PUT" }}, 405, "the method is"},
		{"DELETE", open, []func(*http.Request){func(q *http.Request) { q.Method = "DELETE" }}, 405, "the method is"},
		{"a preflight request", open, []func(*http.Request){func(q *http.Request) { q.Method = "OPTIONS" }}, 405, "the method is"},
		{"no session", locked, nil, 401, "there is no session"},
		{"a session that was made up", locked, []func(*http.Request){set("Cookie", "limbo_console=x; limbo_console_00000000=y")}, 401, "there is no session"},
		{"the token as a header", locked, []func(*http.Request){set("Authorization", "Bearer "+secret)}, 401, "there is no session"},
		{"read-only", Options{ReadOnly: true}, nil, 403, "the console is read-only"},
	} {
		t.Run(c.attack, func(t *testing.T) {
			r := newRig(t, c.options)
			r.schedule(durable.Timer{Key: "a", After: time.Hour})
			q := r.request("/api/timers/cancel", object{"keys": keys64("a")})
			for _, change := range c.change {
				change(q)
			}
			w := r.do(q)
			require.Equal(t, c.status, w.Code, w.Body.String())
			require.Contains(t, w.Body.String(), c.why)
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
			waiting := 1
			if c.status == 200 {
				waiting = 0
			}
			require.Equal(t, waiting, r.stats().Waiting)
		})
	}
}

// Every route that changes something is behind the same checks.
func TestEveryChangeIsGuarded(t *testing.T) {
	for _, target := range []string{
		"/api/timers/cancel", "/api/timers/reset", "/api/timers/requeue", "/api/timers/purge", "/api/bulk", "/api/bulk/x/stop",
		"/api/schedules/put", "/api/schedules/pause", "/api/schedules/resume", "/api/schedules/trigger", "/api/schedules/backfill", "/api/schedules/delete",
	} {
		newRig(t, Options{ReadOnly: true}).refused(403, target, object{}, "read-only")
		newRig(t, Options{Token: secret}).refused(401, target, object{}, "no session")
		r := newRig(t, Options{})
		q := r.request(target, object{})
		q.Header.Del(marker)
		require.Equal(t, 403, r.do(q).Code)
		if target != "/api/bulk" { // GET /api/bulk is the list
			require.Contains(t, []int{404, 405}, r.do(r.request(target, nil)).Code, "GET")
		}
	}
}

// Another site can neither read replies nor make the console read the store.
func TestReadsFromOtherSites(t *testing.T) {
	r := newRig(t, Options{})
	for _, target := range []string{"/api/overview", "/api/timers?state=dead", "/api/count?state=dead", "/api/live", "/api/session"} {
		q := r.request(target, nil)
		q.Header.Set("Sec-Fetch-Site", "cross-site")
		require.Equal(t, 403, r.do(q).Code, target)
	}
	q := r.request("/", nil)
	q.Header.Set("Sec-Fetch-Site", "cross-site") // a link to the page
	require.Equal(t, 200, r.do(q).Code)
	q.Host = "evil.example"
	require.Equal(t, 403, r.do(q).Code)
	locked := newRig(t, Options{Token: secret})
	for _, target := range []string{"/api/overview", "/api/timers?state=dead", "/api/count?state=dead", "/api/timer?key=YQ", "/api/bulk", "/api/schedules", "/api/schedule?key=YQ", "/api/live"} {
		require.Equal(t, 401, locked.do(locked.request(target, nil)).Code, target)
	}
}

func TestHeaders(t *testing.T) {
	r := newRig(t, Options{})
	for target, storage := range map[string]string{"/": "no-cache", "/console.css": "no-cache", "/api/overview": "no-store", "/api/none": "no-store", "/api/timer": "no-store"} {
		head := r.do(r.request(target, nil)).Header()
		require.Contains(t, head.Get("Content-Security-Policy"), "default-src 'none'", target)
		require.NotContains(t, head.Get("Content-Security-Policy"), "unsafe", target)
		require.Equal(t, "nosniff", head.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", head.Get("Referrer-Policy"))
		require.Equal(t, storage, head.Get("Cache-Control"), target)
	}
}

// The page's files have no inline scripts, no inline styles, and only relative addresses.
func TestFiles(t *testing.T) {
	files, err := fs.ReadDir(page(), ".")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := fs.ReadFile(page(), file.Name())
		require.NoError(t, err)
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "<style", "onclick=", `href="/`, `src="/`, "fetch(\"/", "http://", "https://"} {
			text := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
			require.NotContains(t, text, bad, file.Name())
		}
		require.NotContains(t, string(text), "<script>", file.Name())
	}
}

func (r *rig) login(token string) *httptest.ResponseRecorder {
	w := r.do(r.request("/api/login", object{"token": token}))
	r.cookies = append(r.cookies, w.Result().Cookies()...)
	return w
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Token: secret})
		require.Equal(t, object{"login": true, "token": true, "read_only": false}, call[object](r, 200, "/api/session", nil))
		r.refused(401, "/api/login", object{"token": "wrong"}, "this is not the token")
		require.Equal(t, 200, r.login(secret).Code)
		cookie := r.cookies[0]
		require.True(t, cookie.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
		require.Empty(t, cookie.Path, "it is that of the API")
		require.Equal(t, 12*60*60, cookie.MaxAge)
		require.NotContains(t, cookie.Value, secret)
		call[overview](r, 200, "/api/overview", nil)

		q := r.request("/api/overview", nil)
		q.Host = "limbo.example" // with a token, any name is accepted
		require.Equal(t, 200, r.do(q).Code)

		time.Sleep(12*time.Hour - time.Second)
		call[overview](r, 200, "/api/overview", nil)
		time.Sleep(time.Second)
		r.refused(401, "/api/overview", nil, "it has expired")

		r.cookies = nil
		require.Equal(t, 200, r.login(secret).Code)
		call[object](r, 200, "/api/logout", object{})
		r.refused(401, "/api/overview", nil, "there is no session")
		require.Contains(t, r.log.String(), "action=login")
	})
}

func TestCookieByTLS(t *testing.T) {
	r := newRig(t, Options{Token: secret})
	q := r.request("/api/login", object{"token": secret})
	require.False(t, r.do(q).Result().Cookies()[0].Secure)
	q = r.request("/api/login", object{"token": secret})
	q.TLS = &tls.ConnectionState{}
	require.True(t, r.do(q).Result().Cookies()[0].Secure)
	q = r.request("/api/login", object{"token": secret})
	q.Header.Set("Origin", "https://127.0.0.1:7717")
	require.True(t, r.do(q).Result().Cookies()[0].Secure, "a proxy ends TLS")
}

// Each process with the token accepts the session of a login to one of them, for 12 hours. A logout
// removes the browser's cookie. The process that answers it refuses a copy of the cookie.
func TestProcessesShareSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t, Options{Token: secret}), newRig(t, Options{Token: secret, ReadOnly: true})
		other := newRig(t, Options{Token: secret + "!"})
		a.login(secret)
		b.cookies, other.cookies = a.cookies, a.cookies
		for range 3 {
			call[overview](a, 200, "/api/overview", nil)
			call[overview](b, 200, "/api/overview", nil)
		}
		other.refused(401, "/api/overview", nil, "no session")
		other.login(secret + "!")
		require.NotEqual(t, a.cookies[0].Name, other.cookies[1].Name, "a browser keeps both")

		removed := a.do(a.request("/api/logout", object{})).Result().Cookies()[0]
		require.Equal(t, []any{a.cookies[0].Name, "", -1}, []any{removed.Name, removed.Value, removed.MaxAge})
		a.refused(401, "/api/overview", nil, "no session")
		call[overview](b, 200, "/api/overview", nil)
		time.Sleep(12 * time.Hour)
		b.refused(401, "/api/overview", nil, "it has expired")
	})
}

// No change to a cookie's value makes a session that is valid, or one that survives a logout.
func TestForgedSessions(t *testing.T) {
	r := newRig(t, Options{Token: secret})
	r.login(secret)
	value := r.cookies[0].Value
	raw, err := base64.RawURLEncoding.DecodeString(value)
	require.NoError(t, err)
	try := func(value string) int {
		r.cookies = []*http.Cookie{{Name: r.cookies[0].Name, Value: value}}
		return r.do(r.request("/api/overview", nil)).Code
	}
	for i := range raw {
		raw[i] ^= 1
		require.Equal(t, 401, try(base64.RawURLEncoding.EncodeToString(raw)), i)
		raw[i] ^= 1
	}
	for n := range raw {
		require.Equal(t, 401, try(base64.RawURLEncoding.EncodeToString(raw[:n])), n)
	}
	require.Equal(t, 401, try(base64.RawURLEncoding.EncodeToString(append(raw, 0))))
	require.Equal(t, 200, try(value))
	call[object](r, 200, "/api/logout", object{})
	require.Equal(t, 401, try(value))
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range digits { // the last one has two unused bits
		require.Equal(t, 401, try(value[:len(value)-1]+digits[i:i+1]))
	}
}

// The clock of another process may be ahead. Sessions do not last longer if it is far ahead.
func TestSessionsOfOtherClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t, Options{Token: secret}), newRig(t, Options{Token: secret})
		at := func(begun time.Time) int {
			id := binary.BigEndian.AppendUint64(make([]byte, 16), uint64(begun.UnixMilli()))
			b.cookies = []*http.Cookie{{Name: a.console.sessions.cookie, Value: base64.RawURLEncoding.EncodeToString(append(id, a.console.sessions.sign(id)...))}}
			return b.do(b.request("/api/overview", nil)).Code
		}
		for begun, status := range map[time.Duration]int{
			-12 * time.Hour: 401, time.Second - 12*time.Hour: 200, time.Minute: 200, 12 * time.Hour: 401, 1000 * time.Hour: 401,
		} {
			require.Equal(t, status, at(time.Now().Add(begun)), begun)
		}
	})
}

// A process remembers a bounded number of logouts. Beyond it, all earlier sessions have ended.
func TestLogoutsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Token: secret})
		s := &r.console.sessions
		ask := func(value string) *http.Request {
			q := httptest.NewRequest(http.MethodGet, "/", nil)
			q.AddCookie(&http.Cookie{Name: s.cookie, Value: value})
			return q
		}
		fill := func() {
			for len(s.ended) < maxEnded {
				s.end(ask(s.begin()))
			}
		}
		first := ask(s.begin())
		s.end(first)
		fill()
		time.Sleep(12 * time.Hour) // the sessions have expired, and need not be remembered
		second, kept := ask(s.begin()), ask(s.begin())
		s.end(second)
		require.Len(t, s.ended, 1)
		fill()
		require.False(t, s.valid(second))
		require.True(t, s.valid(kept))
		s.end(ask("made up"))
		require.True(t, s.valid(kept))
		s.end(ask(s.begin()))
		require.Len(t, s.ended, 1)
		require.False(t, s.valid(second))
		require.False(t, s.valid(kept))
		time.Sleep(time.Millisecond)
		require.True(t, s.valid(ask(s.begin())))
	})
}

func TestWrongTokensAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Token: secret})
		try := func(remote, token string) *httptest.ResponseRecorder {
			q := r.request("/api/login", object{"token": token})
			q.RemoteAddr = remote
			return r.do(q)
		}
		for i := range 5 {
			require.Equal(t, 401, try(fmt.Sprintf("10.0.0.1:%d", i), "wrong").Code)
			time.Sleep(time.Second)
		}
		w := try("10.0.0.1:9", secret)
		require.Equal(t, 429, w.Code, "the right one, too")
		require.Equal(t, "55", w.Header().Get("Retry-After"))
		require.Empty(t, w.Result().Cookies())
		require.Equal(t, 200, try("10.0.0.2:1", secret).Code, "another address")
		time.Sleep(55 * time.Second)
		require.Equal(t, 200, try("10.0.0.1:9", secret).Code)

		for i := range 5 {
			require.Equal(t, 401, try(fmt.Sprintf("[2001:db8::%d]:1", i), "wrong").Code)
		}
		require.Equal(t, 429, try("[2001:db8::ffff]:1", secret).Code, "the same network")
		require.Equal(t, 401, try("[2001:db8:0:1::1]:1", "wrong").Code)

		for i := range 2 * maxAddresses {
			try(fmt.Sprintf("10.%d.%d.%d:1", 1+i>>16, i>>8&255, i&255), "wrong")
		}
		require.LessOrEqual(t, len(r.console.sessions.wrong), maxAddresses+1)
		require.Equal(t, 429, try("10.200.0.1:1", secret).Code, "too many addresses share an entry")
		time.Sleep(time.Minute)
		require.Equal(t, 200, try("10.200.0.1:1", secret).Code)
	})
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, one := range all {
		p = append(p, netip.MustParsePrefix(one))
	}
	return p
}

// The client is the last address in X-Forwarded-For that no trusted proxy has, but only if a trusted
// proxy sent the request.
func TestClientBehindProxies(t *testing.T) {
	r := newRig(t, Options{TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8", "127.0.0.1/32")})
	for _, c := range []struct {
		what, peer string
		header     []string
		client     string
	}{
		{"no proxy", "203.0.113.9:5", nil, "203.0.113.9"},
		{"a client that poses as a proxy", "203.0.113.9:5", []string{"198.51.100.1"}, "203.0.113.9"},
		{"a proxy", "10.1.2.3:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a proxy without the header", "10.1.2.3:5", nil, "10.1.2.3"},
		{"a client that invents hops", "10.1.2.3:5", []string{"192.0.2.1, 10.9.9.9, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.1.2.3:5", []string{"198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		{"two proxies with a header each", "127.0.0.1:5", []string{"192.0.2.1", "198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		{"an untrusted proxy before a trusted one", "10.1.2.3:5", []string{"198.51.100.1, 192.0.2.7, 10.9.9.9"}, "192.0.2.7"},
		{"a client that is a proxy", "10.1.2.3:5", []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"},
		{"IPv6", "[fd00::1]:5", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 with brackets, ports and a zone", "[fd00::1%eth0]:5", []string{"[2001:db8::7], [fd00::2]:443"}, "2001:db8::7"},
		{"IPv4 in IPv6", "[::ffff:10.1.2.3]:5", []string{"::ffff:198.51.100.1, 10.2.3.4:80"}, "198.51.100.1"},
		{"no address", "10.1.2.3:5", []string{"198.51.100.1, unknown"}, "10.1.2.3"},
		{"no address behind a proxy", "10.1.2.3:5", []string{"198.51.100.1, 300.1.1.1, 10.9.9.9"}, "10.9.9.9"},
		{"an empty entry", "10.1.2.3:5", []string{"198.51.100.1,"}, "10.1.2.3"},
		{"a peer without an address", "@", []string{"198.51.100.1"}, "invalid IP"},
	} {
		q := httptest.NewRequest(http.MethodGet, "/", nil)
		q.RemoteAddr, q.Header = c.peer, http.Header{"X-Forwarded-For": c.header}
		require.Equal(t, c.client, r.console.client(q).String(), c.what)
	}
}

// Wrong tokens of one client lock out neither another one behind the same proxy, nor a session.
func TestThrottleBehindProxies(t *testing.T) {
	r := newRig(t, Options{Token: secret, TrustedProxies: prefixes("10.0.0.0/8")})
	try := func(peer, from, token string) *httptest.ResponseRecorder {
		q := r.request("/api/login", object{"token": token})
		q.RemoteAddr = peer
		q.Header.Set("X-Forwarded-For", from)
		return r.do(q)
	}
	r.cookies = try("10.0.0.1:1", "198.51.100.1", secret).Result().Cookies()
	for i := range 5 {
		require.Equal(t, 401, try("10.0.0.1:1", fmt.Sprintf("192.0.2.%d, 198.51.100.1", i), "wrong").Code)
	}
	require.Equal(t, 429, try("10.0.0.2:1", "198.51.100.1", secret).Code, "by another proxy")
	require.Equal(t, 200, try("10.0.0.1:1", "198.51.100.2", secret).Code)
	q := r.request("/api/overview", nil)
	q.RemoteAddr = "198.51.100.1:1"
	require.Equal(t, 200, r.do(q).Code, "a session is not locked out")
	require.Contains(t, r.log.String(), `"console: too many wrong tokens" remote=10.0.0.2:1 client=198.51.100.1`)
}

func TestOptions(t *testing.T) {
	r := newRig(t, Options{})
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{Token: "short"}, "console: Options.Token is 5 bytes long, must be 16 to 1024"},
		{Options{Hosts: []string{"http://a"}}, `console: Options.Hosts has "http://a", must be host names without ports`},
		{Options{API: "http://[::1/"}, `console: Options.API is "http://[::1/", must be a URL`},
		{Options{TrustedProxies: make([]netip.Prefix, 1)}, `console: Options.TrustedProxies has "invalid Prefix", must be networks of proxies such as 10.0.0.0/8, not all addresses`},
		{Options{TrustedProxies: prefixes("10.0.0.0/8", "::/0")}, `console: Options.TrustedProxies has "::/0", must be networks of proxies such as 10.0.0.0/8, not all addresses`},
		{Options{TrustedProxies: prefixes("::ffff:10.0.0.0/104")}, `console: Options.TrustedProxies has "::ffff:10.0.0.0/104", must be networks of proxies such as 10.0.0.0/8, not all addresses`},
		{Options{MaxStreams: 2000}, "console: Options.MaxStreams is 2000, must be 1 to 1024"},
		{Options{MaxBulk: 17}, "console: Options.MaxBulk is 17, must be 1 to 16"},
	} {
		_, err := New(r.timers, c.options)
		require.EqualError(t, err, c.want)
	}
	_, err := New(nil, Options{})
	require.EqualError(t, err, "console: the timers are nil")
}

// The console works below any path. A request for the path without its slash is redirected.
func TestMounted(t *testing.T) {
	r := newRig(t, Options{})
	h := http.StripPrefix("/a b/console", r.console)
	q := httptest.NewRequest(http.MethodGet, "http://localhost/a%20b/console?x=1", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	require.Equal(t, 301, w.Code)
	require.Equal(t, "./console/", w.Header().Get("Location"))
	for target, kind := range map[string]string{"": "text/html; charset=utf-8", "console.css": "text/css; charset=utf-8", "api/overview": "application/json"} {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/a%20b/console/"+target, nil))
		require.Equal(t, 200, w.Code, target)
		require.Equal(t, kind, w.Header().Get("Content-Type"))
	}
}

// A request with data after its object is refused.
func TestTrailingJSON(t *testing.T) {
	r := newRig(t, Options{})
	q := httptest.NewRequest(http.MethodPost, "/api/timers/cancel", bytes.NewReader([]byte(`{"keys":["YQ"]}{}`)))
	q.Host = "localhost"
	q.Header.Set("Content-Type", "application/json; charset=utf-8")
	q.Header.Set(marker, "1")
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	w := r.do(q)
	require.Equal(t, 400, w.Code)
	var f failure
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &f))
	require.Contains(t, f.Message, "there is more after the object")
}
