// Package need finds the programs that tests start.
package need

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Program returns the path of the first of the named programs that is installed. If
// none is, the test is skipped with the name of the Debian package that has it; with
// LIMBO_REQUIRE set in the environment, as CI does, it fails.
func Program(t testing.TB, pkg string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const format = "%s is not installed: Debian's package %s has it"
	if os.Getenv("LIMBO_REQUIRE") != "" {
		t.Fatalf(format, strings.Join(names, " or "), pkg)
	}
	t.Skipf(format, strings.Join(names, " or "), pkg)
	return ""
}
