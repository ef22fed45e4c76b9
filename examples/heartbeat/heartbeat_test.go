package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// waitLimit bounds every wait of these tests. Only a test that fails waits that long.
const waitLimit = time.Minute

// A bad argument is reported with its value and its range, and nothing is started.
func TestBadArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"-idle x", `invalid value "x" for flag -idle`},
		{"argument", `unexpected argument "argument"`},
		{"-idle 99ms", "-idle is 99ms, must be 100ms to 24h"},
		{"-idle 25h -duration 100h", "-idle is 25h0m0s, must be 100ms to 24h"},
		{"-idle -1s", "-idle is -1s, must be 100ms to 24h"},
		{"-max-connections 0", "-max-connections is 0, must be at least 1"},
		{"-clients 0", "-clients is 0, must be at least 1"},
		{"-clients 10 -max-connections 9", "-max-connections is 9, must be at least -clients, 10"},
		{"-silent 1.1", "-silent is 1.1, must be 0 to 1"},
		{"-silent -0.1", "-silent is -0.1, must be 0 to 1"},
		{"-silent NaN", "-silent is NaN, must be 0 to 1"},
		{"-idle 1s -duration 2s", "-duration is 2s, must be at least three times -idle, 3s"},
		{"-addr nowhere", `-addr is "nowhere": address nowhere: missing port in address`},
		{"-addr :0", `-addr is ":0", which is not loopback; -allow-remote permits it`},
		{"-addr 0.0.0.0:0", `-addr is "0.0.0.0:0", which is not loopback`},
		{"-addr 192.0.2.1:0 -serve", `-addr is "192.0.2.1:0", which is not loopback`},
		{"-addr example.com:0", `-addr is "example.com:0", which is not loopback`},
		{"-addr 127.0.0.1:99999", "invalid port"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(network.Machine, strings.Fields(c.args), &stdout, &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Empty(t, stdout.String())
	}
}

// The swarm checks itself; this test requires that there was something to check. It runs in virtual
// time; the program runs on this machine's network.
func TestSwarm(t *testing.T) {
	_, stop := signal.NotifyContext(t.Context(), os.Interrupt) // the first call starts the signal package's goroutine
	stop()
	for _, silent := range []string{"0", "0.5", "1"} {
		synctest.Test(t, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := run(new(network.Memory), []string{"-clients", "200", "-silent", silent}, &stdout, &stderr)
			require.Zero(t, status, "%s%s", stdout.String(), stderr.String())
			require.Contains(t, stdout.String(), "all 3 checks passed")
			n := map[string]int{"0": 0, "0.5": 100, "1": 200}[silent]
			require.Contains(t, stdout.String(), fmt.Sprintf("silent clients   %d: dropped %d, not dropped 0; early 0;", n, n))
			require.Contains(t, stdout.String(), fmt.Sprintf("talking clients  %d: dropped 0; kept from talking by this machine, and so dropped, 0", 200-n))
			require.Regexp(t, `(?m)^ +seconds +connected +dropped +lines`, stdout.String())
			require.Empty(t, stderr.String())
		})
	}
}

// Each fault that the swarm finds is printed and sets the exit status.
func TestCheckResults(t *testing.T) {
	const idle = time.Second
	start := time.Now()
	at := start.Add
	for _, c := range []struct {
		name   string
		client client
		ok     bool
		says   string
	}{
		{"silent and dropped", client{silent: true, lastSend: start, droppedAt: at(idle + 1)}, true, "silent clients   1: dropped 1, not dropped 0; early 0"},
		{"silent and kept", client{silent: true, lastSend: start}, false, "silent clients   1: dropped 0, not dropped 1; early 0"},
		{"silent and dropped early", client{silent: true, lastSend: start, droppedAt: at(idle - 1)}, false, "silent clients   1: dropped 1, not dropped 0; early 1"},
		{"talks", client{lastSend: start}, true, "talking clients  1: dropped 0; kept from talking by this machine, and so dropped, 0"},
		{"talks and is dropped", client{lastSend: start, droppedAt: at(idle / 2)}, false, "talking clients  1: dropped 1;"},
		{"is kept from talking", client{lastSend: start, droppedAt: at(idle)}, true, "talking clients  1: dropped 0; kept from talking by this machine, and so dropped, 1"},
		{"was kept from talking", client{lastSend: start, longest: idle, droppedAt: at(idle + 1)}, true, "so dropped, 1"},
		{"talks again too late", client{lastSend: start, longest: idle, droppedAt: at(1)}, true, "so dropped, 1"},
		{"falls silent too late", client{silent: true, lastSend: start, longest: idle, droppedAt: at(1)}, true, "silent clients   1: dropped 1, not dropped 0; early 0"},
		{"failed", client{err: errors.New("boo")}, false, "failed clients   1, one by: boo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			w := &swarm{clients: []client{c.client}}
			require.Equal(t, c.ok, w.checkResults(idle, &out))
			require.Contains(t, out.String(), c.says)
			require.Equal(t, !c.ok, strings.Contains(out.String(), "FAIL"))
		})
	}
}

// If the server could not read a line before the limit, the drop is not early: only the last line
// that was answered counts.
func TestUnansweredLineDoesNotCount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var answered time.Time
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		lines := bufio.NewReader(conn)
		line, _ := lines.ReadString('\n')
		answered = time.Now()
		_, _ = io.WriteString(conn, line)
		_, _ = lines.ReadString('\n')
	})
	w := &swarm{clients: make([]client, 1)}
	c := &w.clients[0]
	w.live(t.Context(), &server{on: network.Machine, listener: l, idle: 100 * time.Millisecond}, c, waitLimit, semaphore.NewWeighted(1))
	serving.Wait()
	require.NoError(t, c.err)
	require.False(t, c.droppedAt.IsZero())
	require.False(t, c.lastSend.After(answered), "the second line was not answered")
}

// startServer starts a server for one test, and checks that it leaves nothing behind.
func startServer(t *testing.T, on network.Network, idle time.Duration, limit int) *server {
	t.Helper()
	before := runtime.NumGoroutine()
	s, err := listen(on, "127.0.0.1:0", idle, limit)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		require.NoError(t, s.shutdown(ctx))
		require.Zero(t, s.deadline.Len())
		ended(t, before)
	})
	return s
}

// ended waits until at most n goroutines are left. (Eventually adds a goroutine.)
func ended(t *testing.T, n int) {
	t.Helper()
	for start := time.Now(); runtime.NumGoroutine() > n; runtime.Gosched() {
		if time.Since(start) > waitLimit {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, not %d\n%s", runtime.NumGoroutine(), n, buf[:runtime.Stack(buf, true)])
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(waitLimit)))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(c net.Conn, line string) (string, error) {
	if _, err := io.WriteString(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// The server drops a silent client, not before its limit and within a tick after it, and keeps a
// client that talks.
func TestServerDropsTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle, tick = 200 * time.Millisecond, 10 * time.Millisecond
		on := new(network.Memory)
		s := startServer(t, on, idle, 10)
		start := time.Now()
		silent, err := on.DialContext(t.Context(), "tcp", s.addr())
		require.NoError(t, err)
		talking, err := on.DialContext(t.Context(), "tcp", s.addr())
		require.NoError(t, err)
		defer talking.Close()
		dropped := make(chan time.Duration, 1)
		go func() {
			if _, err := silent.Read(make([]byte, 1)); err == nil {
				t.Error("the silent one was sent something")
			}
			dropped <- time.Since(start)
		}()
		for time.Since(start) < 3*idle {
			got, err := say(talking, "hello\n")
			require.NoError(t, err)
			require.Equal(t, "hello\n", got)
			time.Sleep(idle - 1)
		}
		after := <-dropped
		require.GreaterOrEqual(t, after, idle)
		require.LessOrEqual(t, after, idle+tick)
		require.Equal(t, int64(1), s.dropped.Load())
		require.Equal(t, 1, s.deadline.Len())
		// An unterminated line is no heartbeat.
		said := time.Now()
		_, err = say(talking, "hello\n")
		require.NoError(t, err)
		time.Sleep(idle / 2)
		_, _ = io.WriteString(talking, "hel")
		_, err = talking.Read(make([]byte, 1))
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(said), idle+tick)
		require.Equal(t, int64(2), s.dropped.Load())
	})
}

// Connections beyond the limit are closed; when one ends, another is accepted.
func TestServerLimit(t *testing.T) {
	s := startServer(t, network.Machine, time.Hour, 2)
	first, second := dial(t, s.addr()), dial(t, s.addr())
	for _, c := range []net.Conn{first, second} {
		_, err := say(c, "in\n")
		require.NoError(t, err)
	}
	_, err := dial(t, s.addr()).Read(make([]byte, 1))
	require.Error(t, err)
	require.Equal(t, int64(1), s.refused.Load())
	_, err = say(first, "still\n")
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return s.deadline.Len() == 1 }, waitLimit, time.Millisecond)
	_, err = say(dial(t, s.addr()), "in\n")
	require.NoError(t, err)
	require.Zero(t, s.dropped.Load())
}

// A line that is too long closes the connection; a line of the maximum length is answered.
func TestServerLineLength(t *testing.T) {
	s := startServer(t, network.Machine, time.Hour, 10)
	c := dial(t, s.addr())
	line := strings.Repeat("x", maxLine-1) + "\n"
	got, err := say(c, line)
	require.NoError(t, err)
	require.Equal(t, line, got)
	for _, end := range []string{"", "\n"} {
		c := dial(t, s.addr())
		_, err := io.WriteString(c, strings.Repeat("x", maxLine)+end)
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	require.Eventually(t, func() bool { return s.deadline.Len() == 1 }, waitLimit, time.Millisecond)
	require.Zero(t, s.dropped.Load())
	require.Equal(t, int64(1), s.lines.Load())
}

// Shutdown closes every connection, and may be called again.
func TestServerShutdown(t *testing.T) {
	s := startServer(t, network.Machine, time.Hour, 100)
	var all []net.Conn
	for range 50 {
		c := dial(t, s.addr())
		_, err := say(c, "in\n")
		require.NoError(t, err)
		all = append(all, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	require.NoError(t, s.shutdown(ctx))
	for _, c := range all {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	require.Zero(t, s.dropped.Load(), "closed by the shutdown, not for silence")
	_, err := net.Dial("tcp", s.addr())
	require.Error(t, err)
	s.listener, err = net.Listen("tcp", "127.0.0.1:0") // for startServer's own shutdown
	require.NoError(t, err)
}

// -serve serves until a signal ends it, and leaves nothing behind.
func TestServe(t *testing.T) {
	before := runtime.NumGoroutine()
	read, write := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int)
	go func() {
		status <- run(network.Machine, []string{"-serve", "-idle", "100ms", "-duration", "1ms"}, write, &stderr)
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	var addr string
	_, err = fmt.Sscanf(line, "listening on %s dropping what is silent for 100ms", &addr)
	require.NoError(t, err, line)
	addr = strings.TrimSuffix(addr, ",")

	start := time.Now() // before the server's clock starts
	silent := dial(t, addr)
	_, err = silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
	var talking net.Conn
	for got := ""; got == ""; {
		start = time.Now()
		talking = dial(t, addr)
		if got, err = say(talking, "still there?\n"); err != nil && time.Since(start) >= 100*time.Millisecond {
			continue // a stall of this machine kept the test from talking
		}
		require.NoError(t, err)
		require.Equal(t, "still there?\n", got)
	}

	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGTERM))
	select {
	case code := <-status:
		require.Zero(t, code, stderr.String())
	case <-time.After(waitLimit):
		t.Fatal("SIGTERM did not end it")
	}
	_, err = talking.Read(make([]byte, 1))
	require.Error(t, err)
	require.Empty(t, stderr.String())
	require.NoError(t, write.Close())
	_ = silent.Close()
	_ = talking.Close()
	// signal.NotifyContext leaves the signal package's goroutine behind.
	ended(t, before+1)
}

// An error for an address in use names it.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 2, run(network.Machine, []string{"-serve", "-addr", l.Addr().String()}, &stdout, &stderr))
	require.Contains(t, stderr.String(), l.Addr().String())
}

// So does an error for the page's address, and no server keeps running. It is not a bad argument:
// the address may be free later.
func TestPageAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, stop := signal.NotifyContext(t.Context(), os.Interrupt) // the first call leaves the signal package's goroutine
	stop()
	before := runtime.NumGoroutine()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(network.Machine, []string{"-serve", "-http", l.Addr().String()}, &stdout, &stderr))
	require.Contains(t, stderr.String(), l.Addr().String())
	require.Empty(t, stdout.String())
	ended(t, before)
}
