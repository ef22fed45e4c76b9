// Package need is for tests that start programs which may not be installed.
package need

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Program returns the path of the first of the named programs that is installed. It skips the
// test if none is; pkg is the Debian package that contains them.
func Program(t testing.TB, pkg string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Skip(t, strings.Join(names, " or "), pkg)
	return ""
}

// Skip skips a test because a file or program of a Debian package is not installed.
func Skip(t testing.TB, what, pkg string) {
	t.Helper()
	Missing(t, what+" is not installed: Debian's package "+pkg+" has it")
}

// Missing skips a test because something is missing, which the text names. With LIMBO_REQUIRE
// set in the environment, as in CI, the test fails instead.
func Missing(t testing.TB, text string) {
	t.Helper()
	if os.Getenv("LIMBO_REQUIRE") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}
