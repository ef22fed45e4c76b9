// Package openapi has a test of the description of timerd's API: a client that a generator makes of
// it compiles, and schedules a timer.
package openapi

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // which the client that is generated imports
	"github.com/stretchr/testify/require"
)

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	run(t, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "generated", "-o", in("client.go"),
		"../../durable/timerd/internal/api/openapi.json")

	// The packages are in this module, whose go.mod has what they import, and in no folder of it.
	here, err := os.Getwd()
	require.NoError(t, err)
	program, err := filepath.Abs("testdata/program.txt")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "generated", "client.go"): in("client.go"),
		filepath.Join(here, "program", "main.go"):     program,
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("overlay.json"), overlay, 0o600))
	run(t, "go", "build", "-overlay", in("overlay.json"), "-o", in("program"), "./program")
	run(t, "go", "build", "-o", in("timerd"), "github.com/seed-782fa212/limbo/durable/timerd")

	base := serve(t, in("timerd"), in("timers"))
	require.Equal(t, "201 created, 200 waiting, 200 order/7, 404 not_found, 400 after\n", run(t, in("program"), base))
}

// serve starts timerd on an address of its own, until the test ends.
func serve(t *testing.T, program, folder string) (base string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-listen", address, "-store", "pebble:"+folder, "-allow", "127.0.0.0/8")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		reply, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		_ = reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	return "http://" + address
}
