package spec

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// D1, D4, D5, D8, D9, LATE (no change takes effect late), and S2, S4 and S8 of schedules hold in
// every state of the models; and each of them fails in the broken models.
func TestModel(t *testing.T) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	for _, tool := range [][2]string{{"bash", "bash"}, {"spin", "spin"}, {cc, "gcc"}} {
		need.Program(t, tool[1], tool[0])
	}
	// A cached result holds only for the files that the test itself has read.
	for _, name := range []string{"check.sh", "engine.pml", "plan.pml", "timer.pml"} {
		_, err := os.ReadFile(name)
		require.NoError(t, err)
	}
	out, err := exec.CommandContext(t.Context(), "bash", "check.sh").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("\n%s", out)
}
