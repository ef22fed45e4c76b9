package observe

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
)

// The alerts for durable timers use only collected metrics. Each of them has a description, and a
// test in which it fires and one in which it does not.
func TestDurableAlerts(t *testing.T) {
	rules, err := os.ReadFile("prometheus/durable.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("prometheus/durable_test.yml")
	require.NoError(t, err)
	known := strings.Join(published(t), "\n")
	for _, name := range regexp.MustCompile(`limbo_[a-z_]+[a-z]`).FindAllString(string(rules)+string(tests), -1) {
		require.Contains(t, known, "| `"+name+"` |")
	}
	for _, how := range []string{"lost", "unwritten"} { // the values in LimboRunsRepeated
		require.Regexp(t, "limbo_durable_worker_ended_total.*[ ,]"+how+"[ ,]", known)
	}
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, alerts, 7)
	require.Equal(t, len(alerts), strings.Count(string(rules), "description:"))
	for _, a := range alerts {
		require.Regexp(t, `alertname: `+a[1]+`\n        exp_alerts:`, string(tests))
		require.Contains(t, string(tests), "alertname: "+a[1]+"}")
	}
}

func TestDurableAlertsFire(t *testing.T) {
	promtool := need.Program(t, "prometheus", "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", "prometheus/durable.yml"},
		{"test", "rules", "prometheus/durable_test.yml"},
	} {
		output, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
}
