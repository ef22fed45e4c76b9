package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three timerds share a Redis behind a load balancer that sends each request to the next of them.
// One login is enough, and a logout ends the session at all. Wrong tokens lock out only the client
// that sent them.
func TestConsoleBehindALoadBalancer(t *testing.T) {
	const token = "0123456789abcdef"
	redis := startRedis(t)
	var targets []*url.URL
	for i := range 3 {
		address := serveTimerd(t, func(name string) string { return map[string]string{"TIMERD_TOKEN": token}[name] },
			"-store", redis, "-workers", "0", "-name", fmt.Sprint("timerd-", i), "-trusted-proxies", "::1, 127.0.0.0/8")
		targets = append(targets, &url.URL{Scheme: "http", Host: address})
	}
	const from = "Test-Client" // the address of the balancer's client
	var requests atomic.Int64
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(targets[requests.Add(1)%3])
		r.Out.Host = r.In.Host
		r.Out.Header["X-Forwarded-For"] = slices.Concat(r.In.Header["X-Forwarded-For"], r.In.Header[from])
	}})
	t.Cleanup(balancer.Close)
	api, err := url.Parse(balancer.URL + "/console/api/")
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser, client := &http.Client{Jar: jar}, "203.0.113.1"
	ask := func(path, body string) (int, string) {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, api.String()+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "X-Limbo-Console": {"1"}, from: {client}, "X-Forwarded-For": {"203.0.113.2, 127.0.0.1"}}
		res, err := browser.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		reply, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(reply)
	}
	overviews := func() (statuses []int) {
		for range 3 {
			status, _ := ask("overview", "")
			statuses = append(statuses, status)
		}
		return statuses
	}

	require.Equal(t, []int{401, 401, 401}, overviews())
	status, reply := ask("login", `{"token":"`+token+`"}`)
	require.Equal(t, 200, status, reply)
	require.Equal(t, []int{200, 200, 200}, overviews())
	processes := map[string]bool{}
	for range 3 {
		_, reply := ask("bulk", "")
		processes[reply] = true
	}
	require.Equal(t, map[string]bool{`{"process":"timerd-0","bulk":[]}`: true, `{"process":"timerd-1","bulk":[]}`: true, `{"process":"timerd-2","bulk":[]}`: true}, processes)

	for range 15 { // each timerd counts for itself
		status, reply = ask("login", `{"token":"wrong"}`)
		require.Equal(t, 401, status, reply)
	}
	for range 3 {
		status, reply = ask("login", `{"token":"`+token+`"}`)
		require.Equal(t, 429, status, reply)
	}
	require.Equal(t, []int{200, 200, 200}, overviews(), "the session is not locked out")
	client = "203.0.113.2"
	status, reply = ask("login", `{"token":"`+token+`"}`)
	require.Equal(t, 200, status, reply)

	copied := jar.Cookies(api)
	require.Len(t, copied, 1)
	status, _ = ask("logout", "{}")
	require.Equal(t, 200, status)
	require.Empty(t, jar.Cookies(api))
	require.Equal(t, []int{401, 401, 401}, overviews())
	jar.SetCookies(api, copied)
	require.ElementsMatch(t, []int{401, 200, 200}, overviews(), "the timerd of the logout refuses a copy")
}
