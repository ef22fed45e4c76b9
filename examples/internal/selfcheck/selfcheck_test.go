package selfcheck

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChecks(t *testing.T) {
	var c Checks
	require.False(t, c.OK(), "nothing was checked")
	c.Note("took", "%d µs", 7)
	require.False(t, c.OK(), "nothing was checked")
	c.Add(true, "each ended once", "%d calls", 3)
	require.True(t, c.OK())
	var out bytes.Buffer
	c.Print(&out)
	require.Equal(t, "\n      took             7 µs\nok    each ended once  3 calls\n\nall 1 checks passed\n", out.String())

	var p Problems
	for range 3 * maxProblems {
		p.Add("%d %%", 100)
	}
	require.Len(t, p, maxProblems)
	c.AddProblems(p[:1])
	require.False(t, c.OK())
	out.Reset()
	c.Print(&out)
	require.Contains(t, out.String(), "FAIL  problem          100 %\n\n1 of 2 checks FAILED\n")
}

type result struct {
	N  int `json:"n"`
	ok bool
}

func (r result) Checks() *Checks {
	var c Checks
	c.Add(r.ok, "n", "%d", r.N)
	return &c
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		asJSON, ok     bool
		err            error
		status         int
		stdout, stderr string
	}{
		{false, true, nil, 0, "live\n\nok    n  7\n\nall 1 checks passed\n", ""},
		{true, true, nil, 0, "{\"n\":7}\n", "live\n\nok    n  7\n\nall 1 checks passed\n"},
		{true, false, nil, 1, "{\"n\":7}\n", "live\n\nFAIL  n  7\n\n1 of 1 checks FAILED\n"},
		{false, false, errors.New("boo"), 1, "live\n", "name: boo\n"},
		{true, true, errors.New("boo"), 1, "", "live\nname: boo\n"},
	} {
		var stdout, stderr bytes.Buffer
		status := Run("name", c.asJSON, &stdout, &stderr, func(out io.Writer) (Summary, error) {
			_, _ = io.WriteString(out, "live\n")
			return result{7, c.ok}, c.err
		})
		require.Equal(t, c.status, status)
		require.Equal(t, c.stdout, stdout.String())
		require.Equal(t, c.stderr, stderr.String())
	}
}

// With -json, messages and logs from many goroutines all go to stderr.
func TestShared(t *testing.T) {
	const each = 200
	var stdout, buf bytes.Buffer
	stderr := Shared(&buf)
	logger := new(LogLevel).Logger(stderr, true)
	status := Run("name", true, &stdout, stderr, func(out io.Writer) (Summary, error) {
		p := NewProgress(out)
		var both sync.WaitGroup
		both.Go(func() {
			for n := range each {
				p.Printf("said %d", n)
			}
		})
		both.Go(func() {
			for n := range each {
				logger.Info("logged", "n", n)
			}
		})
		both.Wait()
		return result{7, true}, nil
	})
	require.Zero(t, status)
	for n := range each {
		require.Contains(t, buf.String(), fmt.Sprintf(" s  said %d\n", n))
		require.Contains(t, buf.String(), fmt.Sprintf(" level=INFO msg=logged n=%d\n", n))
	}
	require.Equal(t, os.Stderr, Shared(os.Stderr), "a terminal is seen to be one")
}

// The process's goroutines do not belong to this test alone: those of earlier tests may be about to
// end. So the test passes in a count of its own.
func TestGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		count := func() int { return int(n.Load()) }
		n.Store(8)
		began := time.Now()
		require.Equal(t, 1, waitForCount(7, count))
		require.Greater(t, time.Since(began), goroutinesTimeout)
		time.AfterFunc(goroutinesTimeout/2, func() { n.Store(7) })
		began = time.Now()
		require.Zero(t, waitForCount(7, count))
		require.Equal(t, goroutinesTimeout/2, time.Since(began).Round(time.Second/2))
	})
	require.Zero(t, Goroutines(runtime.NumGoroutine()+100))
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, Sleep(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(began))
		ctx, cancel := context.WithCancelCause(t.Context())
		boo := errors.New("boo")
		time.AfterFunc(time.Second, func() { cancel(boo) })
		require.ErrorIs(t, Sleep(ctx, time.Hour), boo)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestLogLevel(t *testing.T) {
	all := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for _, c := range []struct {
		args   string
		serves bool
		want   string
	}{
		{"", false, "WARN ERROR"},
		{"", true, "INFO WARN ERROR"},
		{"-log-level debug", false, "DEBUG INFO WARN ERROR"},
		{"-log-level info", false, "INFO WARN ERROR"},
		{"-log-level warn", true, "WARN ERROR"},
		{"-log-level error", true, "ERROR"},
	} {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		l := AddLogLevel(flags)
		require.NoError(t, flags.Parse(strings.Fields(c.args)))
		var out bytes.Buffer
		logger := l.Logger(&out, c.serves)
		for _, level := range all {
			logger.Log(context.Background(), level, "x")
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, "level=")
			got = append(got, strings.Fields(rest)[0])
		}
		require.Equal(t, c.want, strings.Join(got, " "), c)
	}
	for _, bad := range []string{"", "INFO", "warning", "4", "info+1"} {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		AddLogLevel(flags)
		require.ErrorContains(t, flags.Parse([]string{"-log-level=" + bad}), "must be debug, info, warn or error", bad)
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out)
		time.Sleep(1500 * time.Millisecond)
		p.Printf("%d nodes", 3)
		stop := p.Bar(func() (float64, string) { panic("there is no terminal") })
		stop()
		require.Equal(t, "  1.50 s  3 nodes\n", out.String())

		// On a terminal the bar is below the lines, and removed at the end.
		out.Reset()
		p.terminal = true
		done := 0.0
		stop = p.Bar(func() (float64, string) { done += 0.5; return done, "of it" })
		time.Sleep(barPeriod / 2)
		p.Printf("a line")
		time.Sleep(barPeriod)
		stop()
		stop()
		p.Printf("the last")
		half, full := strings.Repeat("#", barWidth/2)+strings.Repeat(".", barWidth/2), strings.Repeat("#", barWidth)
		require.Equal(t, "  1.50 s  ["+half+"] of it"+clearLine+"  1.60 s  a line\n"+
			"  1.70 s  ["+full+"] of it"+clearLine+"  1.80 s  the last\n", out.String())
	})
}
