package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock belongs to the other process, and only that process's work advances it.
func TestProcessCPU(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, busy.Start())
	defer func() { _, _ = busy.Process.Kill(), busy.Wait() }()
	idle := exec.Command("sh", "-c", "read line")
	_, err := idle.StdinPipe() // no input comes
	require.NoError(t, err)
	require.NoError(t, idle.Start())
	defer func() { _, _ = idle.Process.Kill(), idle.Wait() }()
	used := func(cmd *exec.Cmd) time.Duration {
		d, err := processCPU(cmd.Process.Pid)
		require.NoError(t, err)
		return d
	}
	// Once the idle process has started, its clock stands still while the other's advances.
	for still := false; !still; {
		idleBefore, busyBefore := used(idle), used(busy)
		require.Eventually(t, func() bool { return used(busy) >= busyBefore+50*time.Millisecond }, time.Minute, time.Millisecond)
		still = idleBefore > 0 && used(idle) == idleBefore
	}
}
