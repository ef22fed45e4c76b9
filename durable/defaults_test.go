package durable

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The defaults are those of the documentation, and of docs/migrating.md.
func TestDefaultsOfWorkers(t *testing.T) {
	host, _ := os.Hostname()
	o, err := WorkerOptions{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, WorkerOptions{
		Name: fmt.Sprintf("%.64s-%d", host, os.Getpid()), Concurrency: 64, Lease: 30 * time.Second, MaxAttempts: 20,
		Backoff: time.Second, MaxBackoff: time.Hour, Grace: 10 * time.Second,
	}, o)
}
