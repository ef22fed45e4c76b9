package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
)

// The metrics of the tour, with all kinds of operations, are valid for Prometheus.
func TestMetricsOfTheTour(t *testing.T) {
	out, in := io.Pipe()
	first, rest := make(chan []byte, 1), make(chan []byte, 1)
	go func() { // before the tour begins, which counts goroutines
		line := make([]byte, 256)
		n, _ := out.Read(line)
		first <- line[:n]
		text, _ := io.ReadAll(out)
		rest <- text
	}()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(strings.Fields("-http 127.0.0.1:0 -duration 1h -polls 100 -rate 1000 -faults=false"), in, &stderr)
		_ = in.Close()
	}()
	line := <-first
	said := regexp.MustCompile(`^a page shows what is held: (http://127\.0\.0\.1:\d+/) `).FindSubmatch(line)
	require.NotNil(t, said, "%s", line)
	var metrics []byte
	require.Eventually(t, func() bool {
		r, err := http.Get(string(said[1]) + "metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		metrics, err = io.ReadAll(r.Body)
		return err == nil && regexp.MustCompile(`limbo_purgatory_ended_total{name="broker \d: produces",outcome="completed"} [1-9]`).Match(metrics)
	}, time.Minute, 10*time.Millisecond, "produces")
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(os.Interrupt)) // which ends the tour
	for broker := range 3 {
		for _, what := range []string{": fetches", ": fetches of followers", ": produces", ": deletions", ": changes of topics", ": joins of groups", ": syncs of groups"} {
			require.Contains(t, string(metrics), fmt.Sprintf(`limbo_purgatory_operations{name="broker %d%s"} `, broker, what))
		}
		for _, what := range []string{"", ": members of groups"} {
			require.Contains(t, string(metrics), fmt.Sprintf(`limbo_wheel_timers{name="broker %d%s"} `, broker, what))
		}
	}
	require.Zero(t, <-status, "%s%s", &stderr, <-rest)

	check := exec.CommandContext(t.Context(), need.Program(t, "prometheus", "promtool"), "check", "metrics")
	check.Stdin = bytes.NewReader(metrics)
	found, err := check.CombinedOutput()
	require.NoError(t, err, "%s", found)
	require.Empty(t, string(found))
}
