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
	lesson    = regexp.MustCompile(`(?m)^### ((?:timers|purgatory) \d+)$`)
	cited     = regexp.MustCompile(`\b(?:timers|purgatory) \d+\b`)
	held      = regexp.MustCompile("(?m)^- `([\\w/]+_test\\.go)`: (.+)$")
	guide     = regexp.MustCompile("`([\\w/]+\\.go)` \\(((?:`\\w+`(?:,\\s)?)+)\\)")
	goNames   = regexp.MustCompile("`(\\w+)`")
	goDeclare = `(?m)^(?:func (?:\([^)]*\) )?|type )%NAME%\b`
)

// The tests that docs/lessons.md names exist, and so do the lessons that tests cite.
func TestLessons(t *testing.T) {
	page, err := os.ReadFile("../docs/lessons.md")
	require.NoError(t, err)
	requireDeclared(t, "docs/lessons.md", held.FindAllStringSubmatch(string(page), -1))

	lessons := map[string]bool{}
	for _, m := range lesson.FindAllStringSubmatch(string(page), -1) {
		lessons[m[1]] = true
	}
	files, err := repositoryFiles("..")
	require.NoError(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err)
		for _, m := range cited.FindAllString(string(source), -1) {
			if !lessons[m] {
				t.Errorf("%s cites %q, which is not in docs/lessons.md", file, m)
			}
		}
	}
}

// The functions and types to which DESIGN.md sends its readers, as in `a/b.go` (`F`),
// are in those files.
func TestDesignAnchors(t *testing.T) {
	page, err := os.ReadFile("../DESIGN.md")
	require.NoError(t, err)
	requireDeclared(t, "DESIGN.md", guide.FindAllStringSubmatch(string(page), -1))
}

// requireDeclared checks references, each a file and names that it declares.
func requireDeclared(t *testing.T, page string, references [][]string) {
	t.Helper()
	require.NotEmpty(t, references)
	for _, r := range references {
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(r[1])))
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		names := goNames.FindAllStringSubmatch(r[2], -1)
		require.NotEmpty(t, names, r[0])
		for _, name := range names {
			if !regexp.MustCompile(strings.ReplaceAll(goDeclare, "%NAME%", name[1])).Match(source) {
				t.Errorf("%s: %s does not declare %s", page, r[1], name[1])
			}
		}
	}
}
