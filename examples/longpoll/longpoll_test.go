package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

func TestBadArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-nonsense":     "flag provided but not defined: -nonsense",
		"argument":      `unexpected argument "argument"`,
		"-polls 4":      "-polls is 4, must be 5 to 100000",
		"-polls 100001": "-polls is 100001, must be 5 to 100000",
		"-nodes 0":      "-nodes is 0, must be 1 to 16",
		"-nodes 17":     "-nodes is 17, must be 1 to 16",
		"-rate 0":       "-rate is 0, must be 1 to 10000",
		"-calm 1ms":     "-calm is 1ms, must be 100ms to 1h",
		"-faults 2h":    "-faults is 2h0m0s, must be 100ms to 1h",
		"-topic= ":      "-topic is empty",
		"-log-level x":  `invalid value "x" for flag -log-level: must be debug, info, warn or error`,
		"-calm yes":     `invalid value "yes" for flag -calm`,
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, command(t.Context(), strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want)
		require.Empty(t, stdout.String())
	}
}

// The program checks itself; this test requires that there was something to check.
func TestPlay(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := strings.Fields("-polls 60 -calm 200ms -faults 200ms -rate 50 -json -log-level info")
	require.Zero(t, command(t.Context(), args, &stdout, &stderr), &stderr)
	require.NotContains(t, stderr.String(), "FAIL")
	require.Equal(t, 1, strings.Count(stdout.String(), "\n"))
	var s summary
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &s))
	require.GreaterOrEqual(t, s.Polls, int64(60))
	require.Positive(t, s.Events)
	require.Positive(t, s.CrossNodeWake.P50)
	for _, name := range []string{"polls", "events", "missed", "early", "unanswered", "wake_us", "cross_node_wake_us", "goroutines_leaked"} {
		require.Contains(t, stdout.String(), `"`+name+`":`)
	}
	// Up to 20: a poll that has just been answered has not returned yet.
	require.Regexp(t, `node 2 dies, and \d+ polls with it`, stderr.String())
	require.Contains(t, stderr.String(), "is back")
	require.Contains(t, stderr.String(), "60 polls are answered by the shutdown")
	require.Contains(t, stderr.String(), "level=INFO msg=\"broker: leader changed\"")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, command(ctx, strings.Fields("-polls 10 -calm 1h"), &stdout, &stderr))
	require.Contains(t, stderr.String(), "deadline exceeded")
	require.NotContains(t, stderr.String()+stdout.String(), "level=INFO", "the table is not drowned")
}

// Each failure that the program defines fails the run.
func TestChecksCanFail(t *testing.T) {
	good := summary{Polls: 1, Events: 1, seen: 1}
	require.True(t, good.Checks().OK())
	for what, spoil := range map[string]func(*summary){
		"no events":      func(s *summary) { s.Events = 0 },
		"missed":         func(s *summary) { s.Missed = 1 },
		"repeated":       func(s *summary) { s.Repeated = 1 },
		"early":          func(s *summary) { s.Early = 1 },
		"unanswered":     func(s *summary) { s.Unanswered = 1 },
		"wrong":          func(s *summary) { s.invalid = 1 },
		"goroutines":     func(s *summary) { s.GoroutinesLeaked = 1 },
		"something else": func(s *summary) { s.problems.Add("x") },
	} {
		s := good
		spoil(&s)
		require.False(t, s.Checks().OK(), what)
	}
	for _, c := range []struct {
		seen, certain    []int
		missed, repeated int
	}{
		{nil, nil, 0, 0},
		{[]int{0, 1, 2}, []int{0, 2}, 0, 0}, // 1 was not known to be published
		{[]int{0, 2}, []int{0, 1, 2}, 1, 0},
		{nil, []int{0, 1}, 2, 0},
		{[]int{0, 1, 1, 2}, []int{0, 1, 2}, 0, 1},
		{[]int{0, 2, 1}, []int{0, 1, 2}, 0, 1},
	} {
		missed, repeated := countMissed(c.seen, c.certain)
		require.Equal(t, []int{c.missed, c.repeated}, []int{missed, repeated}, c)
	}
}

// serving starts a bus and nodes.
func serving(t *testing.T, nodes int) (brokers []string, list []*node) {
	t.Helper()
	var cfg cluster.Config
	cfg.Brokers, cfg.Logger = 1, slog.New(slog.DiscardHandler)
	bus, err := cluster.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.Background())) })
	require.NoError(t, createTopic(t.Context(), bus.Addrs(), "t"))
	require.NoError(t, createTopic(t.Context(), bus.Addrs(), "t"), "it is there")
	for id := range nodes {
		list = append(list, started(t, id, bus.Addrs()))
	}
	return bus.Addrs(), list
}

func started(t *testing.T, id int, brokers []string) *node {
	t.Helper()
	n, err := startNode(id, "127.0.0.1:0", brokers, "t", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.shutdown(context.Background())) })
	return n
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func say(t *testing.T, n *node, room, text string) int {
	t.Helper()
	resp, err := http.Post(n.url()+"/rooms/"+room, "text/plain", strings.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// A node that starts later has the earlier events.
func TestAcrossNodes(t *testing.T) {
	brokers, nodes := serving(t, 2)
	require.Equal(t, http.StatusAccepted, say(t, nodes[0], "lobby", "one"))
	var e []event
	for _, n := range append(nodes, started(t, 2, brokers)) {
		status, body := get(t, n.url()+"/rooms/lobby?wait=30")
		require.Equal(t, http.StatusOK, status)
		require.NoError(t, json.Unmarshal([]byte(body), &e))
		require.Len(t, e, 1)
		require.Equal(t, "one", e[0].Text)
		status, _ = get(t, n.url()+"/rooms/lobby?wait=0&from="+strconv.FormatInt(e[0].Offset+1, 10))
		require.Equal(t, http.StatusNoContent, status)
	}
}

func TestHostileRequests(t *testing.T) {
	_, nodes := serving(t, 1)
	n := nodes[0]
	for path, want := range map[string]string{
		"/rooms/" + strings.Repeat("x", 65): "a room's name must be 1 to 64 bytes long",
		"/rooms/a?from=-1":                  "from must be a whole number from 0 on",
		"/rooms/a?from=9999999999999999999": "from must be a whole number from 0 on",
		"/rooms/a?from=x":                   "from must be a whole number from 0 on",
		"/rooms/a?wait=x":                   `wait is "x", must be seconds`,
	} {
		status, body := get(t, n.url()+path)
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Contains(t, body, want)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, say(t, n, "a", strings.Repeat("x", maxText+1)))
	require.Equal(t, http.StatusBadRequest, say(t, n, strings.Repeat("x", 65), "x"))

	// The text of an event is data, whatever it contains.
	require.Equal(t, http.StatusAccepted, say(t, n, "a%2Fb%00", "<script>\x00\xff"))
	status, body := get(t, n.url()+"/rooms/a%2Fb%00?wait=30")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "<script>", "JSON escapes it")

	resp, err := http.Get(n.url())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, string(page), "innerHTML")
}

func TestRoomsAreBounded(t *testing.T) {
	r := newRooms()
	r.maxEvents = 10
	for i := range 100 {
		r.add(fmt.Sprint(i%20), event{Offset: int64(i)})
	}
	require.Len(t, r.byName, 10)
	require.Len(t, r.order, 10)
	require.Empty(t, r.from("0", 0))
	require.Equal(t, []event{{Offset: 99}}, r.from("19", 0))
	require.True(t, r.has("19", 99))
	require.False(t, r.has("19", 100))
}

func TestServeForPeople(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- command(ctx, []string{"-serve", "-nodes", "2"}, in, io.Discard)
		_ = in.Close()
	}()
	buf, text := make([]byte, 256), ""
	for !strings.Contains(text, "open two of these") {
		n, err := out.Read(buf)
		require.NoError(t, err)
		text += string(buf[:n])
	}
	_, rest, _ := strings.Cut(text, "serves at ")
	url := strings.Fields(rest)[0]
	status, body := get(t, url)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "Long polls")
	cancel()
	require.Zero(t, <-ended)
}
