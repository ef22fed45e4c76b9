package livepage

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/timingwheel"
)

func parsed(t *testing.T, args ...string) *Page {
	t.Helper()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	p := AddFlag(flags)
	require.NoError(t, flags.Parse(args))
	return p
}

// A page that a browser has open does not delay Stop, which leaves no goroutine behind.
func TestPage(t *testing.T) {
	before := runtime.NumGoroutine()
	p := parsed(t, "-http", "127.0.0.1:0")
	require.NoError(t, p.Check())
	w, err := timingwheel.New(func(int) {}, timingwheel.Options{})
	require.NoError(t, err)
	_, err = Add(p.Registry(), "a wheel", observe.Wheel(w))
	require.NoError(t, err)
	var url string
	require.NoError(t, p.Start(func(format string, args ...any) {
		_, url, _ = strings.Cut(fmt.Sprintf(format, args...), "http://")
		url, _, _ = strings.Cut("http://"+url, " ")
	}))
	client := &http.Client{Transport: &http.Transport{}}
	get := func(path string) *http.Response {
		r, err := client.Get(url + path)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		return r
	}
	for path, want := range map[string]string{
		"":              "<!doctype html>",
		"metrics":       `limbo_wheel_timers{name="a wheel"} 0`,
		"snapshot.json": `"name":"a wheel"`,
	} {
		r := get(path)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Contains(t, string(text), want)
	}
	open := get("events")
	lines := bufio.NewScanner(open.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	require.Contains(t, lines.Text(), `"name":"a wheel"`)
	require.NoError(t, p.Stop())
	for lines.Scan() { // until its end
	}
	require.NoError(t, open.Body.Close())
	require.NoError(t, p.Stop())
	client.CloseIdleConnections()
	_, err = w.Close(timingwheel.Discard)
	require.NoError(t, err)
	require.Zero(t, selfcheck.Goroutines(before))
}

func TestNoPage(t *testing.T) {
	for _, p := range []*Page{nil, parsed(t)} {
		require.Nil(t, p.Registry())
		require.NoError(t, p.Start(func(string, ...any) { t.Error("there is no page") }))
		remove, err := Add(p.Registry(), "", observe.Source{})
		require.NoError(t, err)
		remove()
		require.NoError(t, p.Stop())
	}
	require.NoError(t, parsed(t).Check())
}

// Several sources are added together, or not at all.
func TestAddAll(t *testing.T) {
	w, err := timingwheel.New(func(int) {}, timingwheel.Options{})
	require.NoError(t, err)
	defer w.Close(timingwheel.Discard)
	r := parsed(t, "-http", "127.0.0.1:0").Registry()
	custom := observe.Custom("custom", func() []observe.Metric { return nil })
	_, err = AddAll(r, Named{"good", observe.Wheel(w)}, Named{"", custom})
	require.ErrorContains(t, err, "the name has 0 bytes")
	require.Empty(t, r.Snapshot().Sources)
	remove, err := AddAll(r, Named{"good", observe.Wheel(w)}, Named{"good", custom})
	require.NoError(t, err)
	require.Len(t, r.Snapshot().Sources, 2)
	remove()
	require.Empty(t, r.Snapshot().Sources)
	remove, err = AddAll(nil, Named{"good", custom})
	require.NoError(t, err)
	remove()
}

func TestAddress(t *testing.T) {
	for _, good := range []string{"127.0.0.1:0", "localhost:19080", "[::1]:1"} {
		require.NoError(t, parsed(t, "-http", good).Check(), good)
	}
	for bad, want := range map[string]string{
		":19080":         `-http is ":19080", must be loopback: the page shows keys and has no login`,
		"0.0.0.0:1":      `-http is "0.0.0.0:1", must be loopback: the page shows keys and has no login`,
		"127.0.0.1":      `-http is "127.0.0.1": address 127.0.0.1: missing port in address`,
		"example.com:80": `-http is "example.com:80", must be loopback: the page shows keys and has no login`,
	} {
		require.EqualError(t, parsed(t, "-http", bad).Check(), want)
	}
	require.ErrorContains(t, parsed(t, "-http", "127.0.0.1:99999").Start(t.Logf), "-http: ")
}
