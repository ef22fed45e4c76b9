package observe

import (
	"os"
	"os/exec"
	"testing"
)

// program returns the path of a program of a Debian package. If it is not installed, the
// test is skipped; with LIMBO_REQUIRE set in the environment, as CI does, it fails.
func program(t testing.TB, pkg, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	lack(t, "%s is not installed: Debian's package %s has it", name, pkg)
	return ""
}

// lack skips a test, or fails it, for a program that it needs.
func lack(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("LIMBO_REQUIRE") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
