// Package openapi tests the description of timerd's API: a client generated from it compiles,
// and schedules a timer.
package openapi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	_ "github.com/oapi-codegen/runtime" // imported by the generated client
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/servers"
)

func TestMain(m *testing.M) {
	code := m.Run()
	servers.Remove()
	os.Exit(code)
}

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

	// The packages must be inside this module, whose go.mod has their imports, but in no folder
	// of it.
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

	timerd := servers.Timerd(t, "", "-store", "pebble:"+in("timers"), "-allow", "127.0.0.0/8")
	require.Equal(t, "201 created, 200 waiting, 200 order/7, 404 not_found, 400 after\n", run(t, in("program"), "http://"+timerd.Address))
}
