// Package servers starts redis-server and timerd for tests.
package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/internal/programs"
)

// Server is a program that ends with the test.
type Server struct {
	*programs.Process
	Address string // host:port, on loopback
}

func address(t *testing.T) string {
	addr, err := programs.Addr()
	require.NoError(t, err)
	return addr
}

func serve(t *testing.T, address string, p *programs.Process, err error) Server {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return Server{p, address}
}

// Redis starts a redis-server, or valkey-server, that keeps everything in memory. A test that lacks
// both is skipped.
func Redis(t *testing.T) Server {
	t.Helper()
	addr := address(t)
	p, err := programs.StartRedis(need.Program(t, "redis-server", "redis-server", "valkey-server"), addr, t.TempDir())
	return serve(t, addr, p, err)
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

// Timerd starts timerd with the given flags, and with a token unless token is empty.
func Timerd(t *testing.T, token string, flags ...string) Server {
	t.Helper()
	addr := address(t)
	cmd := exec.Command(program(t), append([]string{"-listen", addr}, flags...)...)
	cmd.Env = append(os.Environ(), "TIMERD_TOKEN="+token)
	p, err := programs.StartReady(cmd, programs.Accepts(addr))
	return serve(t, addr, p, err)
}
