package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// curlCommands returns the page's curl commands, with the lines of each joined.
func curlCommands(page string) (commands []string) {
	open := false
	for line := range strings.Lines(page) {
		text, indented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		switch {
		case open && indented:
			commands[len(commands)-1] += "\n" + text
		case indented && strings.HasPrefix(text, "curl "):
			text, _, _ = strings.Cut(text, "     ") // without the remark to its right
			commands = append(commands, text)
		default:
			continue
		}
		open = strings.Count(commands[len(commands)-1], "'")%2 == 1
	}
	return commands
}

// The page's curl commands work, in their order on the page.
func TestPageCommands(t *testing.T) {
	need.Program(t, "curl", "curl")
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	var stderr strings.Builder
	ctx, stop := context.WithCancel(t.Context())
	status := make(chan int, 1)
	defer func() {
		stop()
		require.Zero(t, <-status, stderr.String())
	}()
	go func() {
		args := []string{"-listen", addr, "-store", "pebble:" + filepath.Join(t.TempDir(), "timers"), "-allow", "127.0.0.1"}
		status <- run(ctx, args, noEnv, &stderr, &stderr)
	}()
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + addr + "/healthz")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)

	want := []struct{ command, status, reply string }{
		{"-X PUT", "201", `"result":"created"`},
		{"/timers -d", "200", `"result":"created"`},
		{"/timers/order-7", "200", `"state":"waiting"`},
		{"-X PATCH", "200", `"result":"moved"`},
		{"-X DELETE", "200", `"result":"cancelled"`},
		{"/timers?limit=100'", "200", `"key":"b"`},
		{"/timers?limit=100&after=", "200", `"key":"a"`},
		{"?state=leased&topic=", "200", `"timers":[]`},
		{"?prefix=order%2F42&error=", "200", `"timers":[]`},
		{"-X PUT", "201", `{"key":"nightly","result":"created","next":["20`},
		{"/schedules/preview", "200", `{"next":["2030-03-29T02:30:00+01:00","2030-04-01T02:30:00+02:00","2030-04-02T02:30:00+02:00"]}`},
		{"/schedules/nightly", "200", `"state":"active"`},
		{"/schedules?limit=100", "200", `"key":"nightly"`},
		{"/pause", "200", `"result":"paused"`},
		{"/resume", "200", `"result":"resumed"`},
		{"/trigger", "200", `"path":"/timers/nightly%00`},
		{"/backfill", "200", `"count":2`},
		{"?occurrences=cancel", "200", `"result":"deleted","cancelled":`},
		{"/dead?limit=100", "200", `"timers":[]`},
		{"-X POST", "404", `"result":"absent"`},
		{"-X DELETE", "404", `"result":"absent"`},
		{"/healthz", "200", ""},
		{"/metrics", "200", "timerd_"},
		{"/workers", "200", `"live":true`},
		{"/openapi.json", "200", `{"openapi":"3.1.0",`},
		{"Bearer", "", ""}, // needs a token and another machine
	}
	commands := curlCommands(string(page))
	require.Len(t, commands, len(want))
	for i, w := range want {
		require.Contains(t, commands[i], w.command)
		if w.status == "" {
			continue
		}
		command := strings.ReplaceAll(commands[i], "127.0.0.1:7717", addr)
		if cut, _, ok := strings.Cut(command, "after=AAAB"); ok {
			command = cut + "after=" + nextPage(t, addr) + "'"
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command+` -s -S -w '\n%{http_code}'`).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
		at := strings.LastIndex(string(out), "\n")
		body := string(out[:at])
		require.Equal(t, w.status, string(out[at+1:]), "%s: %s", command, body)
		require.Contains(t, body, w.reply, command)
	}
}

// nextPage returns the cursor after a page of one timer.
func nextPage(t *testing.T, addr string) string {
	r, err := http.Get("http://" + addr + "/timers?limit=1")
	require.NoError(t, err)
	defer r.Body.Close()
	var list struct {
		Next string `json:"next"`
	}
	require.NoError(t, json.NewDecoder(r.Body).Decode(&list))
	require.NotEmpty(t, list.Next)
	return list.Next
}
