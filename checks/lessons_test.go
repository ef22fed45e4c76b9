package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	lesson      = regexp.MustCompile(`(?m)^### ((?:timers|purgatory) \d+)$`)
	heldBy      = regexp.MustCompile("(?m)^- `([\\w/]+_test\\.go)`: (.+)$")
	testName    = regexp.MustCompile("`(Test\\w+)`")
	citedInTest = regexp.MustCompile(`\b(timers|purgatory) (\d+)\b`)
)

// The tests that docs/lessons.md names exist, and so do the lessons that tests cite.
func TestLessons(t *testing.T) {
	text, err := os.ReadFile("../docs/lessons.md")
	require.NoError(t, err)
	lessons := map[string]bool{}
	for _, m := range lesson.FindAllStringSubmatch(string(text), -1) {
		lessons[m[1]] = true
	}
	require.NotEmpty(t, lessons)
	lines := heldBy.FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, lines)
	for _, line := range lines {
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(line[1])))
		if err != nil {
			t.Errorf("docs/lessons.md: %v", err)
			continue
		}
		names := testName.FindAllStringSubmatch(line[2], -1)
		require.NotEmpty(t, names, line[0])
		for _, name := range names {
			if !strings.Contains(string(source), "\nfunc "+name[1]+"(") {
				t.Errorf("docs/lessons.md: there is no %s in %s", name[1], line[1])
			}
		}
	}
	files, err := repositoryFiles("..")
	require.NoError(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err)
		for _, m := range citedInTest.FindAllString(string(source), -1) {
			if !lessons[m] {
				t.Errorf("%s cites %q, which is not in docs/lessons.md", file, m)
			}
		}
	}
}
