package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// With startVariable in the environment, the test binary starts a program, prints its number and
// waits.
const startVariable = "LIMBO_PROGRAMS_START"

func TestMain(m *testing.M) {
	if os.Getenv(startVariable) != "" {
		p, err := Start(exec.Command("sleep", "600"))
		fmt.Println(p.Pid, err)
		_ = p.Wait()
		return
	}
	os.Exit(m.Run())
}

// A program ends with the process that started it, even if that is killed.
func TestEndsWithThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system is not Linux, whose kernel kills a program when its parent ends")
	}
	if testing.Short() {
		t.Skip("-short may mean an emulator, which cannot start the test binary again")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), startVariable+"=1")
	p, err := Start(cmd)
	require.NoError(t, err)
	child := 0
	require.NoError(t, p.Ready(func() error {
		before, _, _ := strings.Cut(p.Output(), " <nil>\n")
		child, err = strconv.Atoi(before)
		return err
	}))
	status := func() string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return string(b)
	}
	require.Contains(t, status(), "(sleep)")
	p.Kill()
	require.Eventually(t, func() bool { s := status(); return s == "" || strings.Contains(s, ") Z ") }, time.Minute, time.Millisecond)
}

func TestStop(t *testing.T) {
	shell := func(script string) *Process {
		t.Helper()
		p, err := Start(exec.Command("sh", "-c", script))
		require.NoError(t, err)
		require.NoError(t, p.Ready(func() error {
			if p.Output() != "ready\n" {
				return errors.New("not ready")
			}
			return nil
		}))
		return p
	}
	p := shell("trap 'exit 3' TERM; echo ready; while :; do sleep .01; done")
	require.ErrorContains(t, p.Stop(time.Minute), "exit status 3")

	p = shell("trap '' TERM; echo ready; exec sleep 600")
	require.NoError(t, p.Suspend())
	require.ErrorContains(t, p.Stop(50*time.Millisecond), "did not end within 50ms")
	require.ErrorContains(t, p.Wait(), "killed")
}

// An error shows how the program has ended, and what it has printed.
func TestNotReady(t *testing.T) {
	addr, err := Addr()
	require.NoError(t, err)
	_, err = StartReady(exec.Command("sh", "-c", "echo no such flag >&2; exit 2"), Accepts(addr))
	require.ErrorContains(t, err, "sh -c")
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "exit status 2")
	require.ErrorContains(t, err, "no such flag")

	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer l.Close()
	p, err := Start(exec.Command("true"))
	require.NoError(t, err)
	require.NoError(t, p.Wait())
	require.ErrorContains(t, p.Ready(Accepts(addr)), "ended before", "another program answers")

	_, err = Start(exec.Command("/nonexistent/program"))
	require.ErrorContains(t, err, "/nonexistent/program")
}

// A server keeps its address and its files when it is killed and started again.
func TestRedis(t *testing.T) {
	path := need.Program(t, "redis-server", "redis-server", "valkey-server")
	addr, err := Addr()
	require.NoError(t, err)
	dir := t.TempDir()
	for range 2 {
		p, err := StartRedis(path, addr, dir, "--appendonly", "yes")
		require.NoError(t, err)
		require.NoError(t, Accepts(addr)())
		require.DirExists(t, dir+"/appendonlydir")
		p.Kill()
		require.Error(t, Accepts(addr)())
	}
}
