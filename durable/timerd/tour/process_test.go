package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A timerd that gives up is restarted until the tour ends it.
func TestProcessIsRestarted(t *testing.T) {
	t.Parallel()
	p, err := child("none", filepath.Join(t.TempDir(), "log"), childConfig{})
	require.NoError(t, err)
	p.restarts = true
	require.NoError(t, p.start())
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.gaveUp >= 2
	}, time.Minute, 10*time.Millisecond)
	p.kill()
	require.Nil(t, p.running)
	require.Equal(t, 1, p.kills())
}
