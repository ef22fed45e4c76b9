package need

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// verdict is a test that records its outcome.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatal(args ...any) {
	v.said = "failed: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (v *verdict) Skip(args ...any) {
	v.said = "skipped: " + fmt.Sprint(args...)
	runtime.Goexit()
}

// look returns the result of Program for b or c, and the outcome of the test.
func look(t *testing.T) (path, said string) {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		path = Program(v, "pkg", "b", "c")
	}()
	<-done
	return path, v.said
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("LIMBO_REQUIRE", "")
	_, said := look(t)
	require.Equal(t, "skipped: b or c is not installed: Debian's package pkg has it", said)
	t.Setenv("LIMBO_REQUIRE", "all")
	_, said = look(t)
	require.Equal(t, "failed: b or c is not installed: Debian's package pkg has it", said)
	for _, name := range []string{"c", "b"} { // the first of them is preferred
		want := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(want, []byte("#!/bin/sh\n"), 0o700))
		path, said := look(t)
		require.Equal(t, want, path)
		require.Empty(t, said)
	}
}
