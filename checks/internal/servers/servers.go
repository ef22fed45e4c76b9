// Package servers starts redis-server and timerd for tests.
package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

const waitLimit = time.Minute // time limit for the start of a server

// Server is a process that ends with the test.
type Server struct {
	Address string // host:port, on loopback
	Process *os.Process
}

// start starts a process, and returns it with a function that waits for its end.
func start(t *testing.T, cmd *exec.Cmd) (*os.Process, func() error) {
	t.Helper()
	require.NoError(t, cmd.Start())
	wait := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // also ends a process that is stopped by SIGSTOP
		_ = wait()
	})
	return cmd.Process, wait
}

// Redis starts a redis-server, or valkey-server, that keeps everything in memory. A test that lacks
// both is skipped.
func Redis(t *testing.T) Server {
	t.Helper()
	path := need.Program(t, "redis-server", "redis-server", "valkey-server")
	dir := t.TempDir()
	for range 10 { // another process may take the port before the server does
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := l.Addr().String()
		_, port, _ := net.SplitHostPort(address)
		require.NoError(t, l.Close())
		process, wait := start(t, exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", ""))
		ended := make(chan struct{})
		go func() {
			_ = wait()
			close(ended)
		}()
		if answers(t, address, ended) {
			return Server{address, process}
		}
	}
	require.Fail(t, "no port is free for redis-server")
	return Server{}
}

// answers waits until a server accepts connections, or its process has ended.
func answers(t *testing.T, address string, ended <-chan struct{}) bool {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < waitLimit; {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			select {
			case <-ended: // another process answers at the port
				return false
			default:
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	require.Fail(t, "redis-server does not answer", address)
	return false
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// program returns the path of timerd. It is built once per process, without debug symbols, which
// take most of the build time.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "timerd"); built.err != nil {
			return
		}
		out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", built.dir, "github.com/seed-782fa212/limbo/durable/timerd").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "timerd")
}

// Remove removes the program that Timerd has built. A TestMain calls it after the tests.
func Remove() { _ = os.RemoveAll(built.dir) }

// Timerd starts timerd with the given flags, and with a token unless token is empty. The kernel
// chooses its address.
func Timerd(t *testing.T, token string, flags ...string) Server {
	t.Helper()
	cmd := exec.Command(program(t), append([]string{"-listen", "127.0.0.1:0", "-log", "json"}, flags...)...)
	cmd.Env = append(os.Environ(), "TIMERD_TOKEN="+token)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stderr = in
	process, wait := start(t, cmd)
	require.NoError(t, in.Close())
	address, rest := make(chan string, 1), make(chan string, 1)
	go func() {
		defer out.Close()
		lines := bufio.NewReader(out)
		var before []byte
		for {
			line, err := lines.ReadBytes('\n')
			before = append(before, line...)
			var message struct{ Msg, Listen string }
			if json.Unmarshal(line, &message) == nil && message.Msg == "timerd serves" {
				address <- message.Listen
				break
			}
			if err != nil {
				rest <- fmt.Sprintf("%v: %s", wait(), before)
				return
			}
		}
		_, _ = io.Copy(io.Discard, lines)
	}()
	select {
	case a := <-address:
		return Server{a, process}
	case why := <-rest:
		require.Fail(t, "timerd has ended", why)
	case <-time.After(waitLimit):
		require.Fail(t, "timerd does not serve")
	}
	return Server{}
}
