package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

func TestBadArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-nonsense":      "flag provided but not defined: -nonsense",
		"argument":       `unexpected argument "argument"`,
		"-calls 99":      "-calls is 99, must be 100 to 1000000",
		"-calls 1000001": "-calls is 1000001, must be 100 to 1000000",
		"-calls x":       `invalid value "x" for flag -calls`,
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(t.Context(), network.Machine, strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want)
		require.Empty(t, stdout.String())
	}
}

// The program checks itself; this test requires that there was something to check. It runs in
// virtual time; the program runs on this machine's network.
func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		require.Zero(t, run(t.Context(), new(network.Memory), []string{"-calls", "2000", "-json"}, &stdout, &stderr), &stderr)
		require.NotContains(t, stderr.String(), "FAIL")
		require.Equal(t, 1, strings.Count(stdout.String(), "\n"))
		var s summary
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &s))
		require.Equal(t, 2000+200+20, s.Calls)
		require.Equal(t, 2000+200, s.InFlight)
		require.Equal(t, int64(s.Calls), s.Answered+s.Expired+s.Cancelled+s.Failed)
		for _, n := range []int64{s.Answered, s.Expired, s.Cancelled, s.Failed, int64(s.Unmatched)} {
			require.Positive(t, n, stdout.String())
		}
		for _, name := range []string{"calls", "answered", "expired", "cancelled", "failed", "twice", "leaked", "goroutines_leaked"} {
			require.Contains(t, stdout.String(), `"`+name+`":`)
		}
	})
}

// A machine that needs longer than the lead to make the calls gets another try.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inFlight = 100
		enough := leadTimes(inFlight)
		var out bytes.Buffer
		s, err := runScenario(t.Context(), new(network.Memory), inFlight, 1, func(try int) time.Duration {
			if try == 0 {
				return 0 // passes before the first call is made
			}
			return enough(try)
		}, nil, &out)
		require.NoError(t, err, &out)
		require.True(t, s.Checks().OK(), &out)
		require.Equal(t, inFlight+inFlight/10, s.InFlight)
		require.Contains(t, out.String(), "took longer than 0s to make the calls: again, with twice the time")
	})
}

// The page's port is opened first, so there is nothing to undo.
func TestPageAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	before := runtime.NumGoroutine()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(t.Context(), network.Machine, []string{"-calls", "100", "-http", l.Addr().String()}, &stdout, &stderr))
	require.Contains(t, stderr.String(), l.Addr().String())
	require.Zero(t, selfcheck.Goroutines(before))
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(ctx, network.Machine, []string{"-calls", "100"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "context canceled")
}

// Each failure that the program defines fails the run.
func TestChecksCanFail(t *testing.T) {
	good := summary{Calls: 1, Answered: 1}
	require.True(t, good.Checks().OK())
	for what, spoil := range map[string]func(*summary){
		"nothing done":   func(s *summary) { *s = summary{} },
		"not at once":    func(s *summary) { s.InFlight = 1 },
		"twice":          func(s *summary) { s.Twice = 1 },
		"left behind":    func(s *summary) { s.Leaked = 1 },
		"early":          func(s *summary) { s.Early = 1 },
		"another's":      func(s *summary) { s.wrong = 1 },
		"goroutines":     func(s *summary) { s.GoroutinesLeaked = 1 },
		"something else": func(s *summary) { s.problems.Add("x") },
	} {
		s := good
		spoil(&s)
		require.False(t, s.Checks().OK(), what)
	}
}

// The server closes a connection that sends an invalid request, and serves the others.
func TestMalformedRequest(t *testing.T) {
	s, err := listen(network.Machine)
	require.NoError(t, err)
	bad, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	_, err = bad.Write(bytes.Repeat([]byte{0xff}, 10*frameSize))
	require.NoError(t, err)
	_, err = io.ReadAll(bad)
	if err != nil { // a reset: the server has not read everything
		require.ErrorContains(t, err, "reset")
	}
	good, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	l := newLink(good)
	require.NoError(t, l.send(frame{id: 7, payload: 1}))
	_, err = good.Write(l.queued)
	require.NoError(t, err)
	f, err := readFrame(good)
	require.NoError(t, err)
	require.Equal(t, frame{id: 7, payload: ^uint64(1)}, f)
	require.NoError(t, good.Close())
	require.NoError(t, bad.Close())
	require.NoError(t, s.shutdown(context.Background()))
}

func FuzzFrame(f *testing.F) {
	f.Add(make([]byte, frameSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if len(b) < frameSize {
			require.Error(t, err)
		} else if err == nil {
			require.Less(t, got.action, actions)
		}
	})
}
