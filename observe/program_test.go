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
	const format = "%s is not installed: Debian's package %s has it"
	if os.Getenv("LIMBO_REQUIRE") != "" {
		t.Fatalf(format, name, pkg)
	}
	t.Skipf(format, name, pkg)
	return ""
}
