package need

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a test that records its outcome.
type recorder struct {
	testing.TB
	outcome string
}

func (v *recorder) Helper() {}

func (v *recorder) Fatal(args ...any) {
	v.outcome = "failed: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (v *recorder) Skip(args ...any) {
	v.outcome = "skipped: " + fmt.Sprint(args...)
	runtime.Goexit()
}

// runProgram returns the result of Program for b or c, and the outcome of the test.
func runProgram(t *testing.T) (path, outcome string) {
	v := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		path = Program(v, "pkg", "b", "c")
	}()
	<-done
	return path, v.outcome
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("LIMBO_REQUIRE", "")
	_, outcome := runProgram(t)
	require.Equal(t, "skipped: b or c is not installed: Debian's package pkg has it", outcome)
	t.Setenv("LIMBO_REQUIRE", "all")
	_, outcome = runProgram(t)
	require.Equal(t, "failed: b or c is not installed: Debian's package pkg has it", outcome)
	for _, name := range []string{"c", "b"} { // the first of them is preferred
		want := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(want, []byte("#!/bin/sh\n"), 0o700))
		path, outcome := runProgram(t)
		require.Equal(t, want, path)
		require.Empty(t, outcome)
	}
}
