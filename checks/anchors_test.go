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
	contract  = regexp.MustCompile(`(?m)^\| ([DPT]\d+) \|`)
	lesson    = regexp.MustCompile(`(?m)^### ((?:timers|purgatory|calls) \d+)$`)
	wrong     = regexp.MustCompile(`(?m)^\| (\d+(?:, \d+)*) \|`)
	branch    = regexp.MustCompile(`(?m)^\s*case .*$`)
	cited     = regexp.MustCompile(`(?m)(?:^|[^-\w]|func Test)((?:timers|purgatory|calls|case) [1-9]\d?\b|[DFPT]\d{1,2}(?:\b|[A-Z]))`)
	percent   = regexp.MustCompile(`^P(?:50|9\d)$`)
	held      = regexp.MustCompile("(?m)^- `([\\w/]+_test\\.go)`: (.+)$")
	guide     = regexp.MustCompile("`([\\w/]+\\.go)` \\(((?:`\\w+`(?:,\\s)?)+)\\)")
	goNames   = regexp.MustCompile("`(\\w+)`")
	testNames = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	// skippedNames are the names in skip patterns; those before .* or at an open end are prefixes.
	skippedNames = regexp.MustCompile(`\b(Test[A-Z]\w+)(\.\*|[^$|)/\w])?`)
	goDeclare    = `(?m)^(?:func (?:\([^)]*\) )?|type )%NAME%\b`
)

// The tests that docs/lessons.md names exist.
func TestLessons(t *testing.T) {
	page, err := os.ReadFile("../docs/lessons.md")
	require.NoError(t, err)
	requireDeclared(t, "docs/lessons.md", held.FindAllStringSubmatch(string(page), -1))
}

// DESIGN.md defines each contract that comments and tests cite (T4), and docs/lessons.md each
// lesson (timers 7, case 12).
func TestCitations(t *testing.T) {
	design, err := os.ReadFile("../DESIGN.md")
	require.NoError(t, err)
	lessons, err := os.ReadFile("../docs/lessons.md")
	require.NoError(t, err)
	defined := map[string]bool{}
	for _, m := range contract.FindAllStringSubmatch(string(design), -1) {
		defined[m[1]] = true
	}
	for _, m := range lesson.FindAllStringSubmatch(string(lessons), -1) {
		defined[m[1]] = true
	}
	for _, m := range wrong.FindAllStringSubmatch(string(lessons), -1) {
		for number := range strings.SplitSeq(m[1], ", ") {
			defined["case "+number] = true
		}
	}
	files, err := repositoryFiles("..")
	require.NoError(t, err)
	count := 0
	for _, file := range files {
		if filepath.Ext(file) != ".go" && filepath.Ext(file) != ".lua" && filepath.Ext(file) != ".pml" || file == "checks/anchors_test.go" {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err)
		for _, m := range cited.FindAllStringSubmatch(branch.ReplaceAllString(string(source), ""), -1) {
			name := strings.TrimRight(m[1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
			if percent.MatchString(name) {
				continue
			}
			count++
			if !defined[name] {
				t.Errorf("%s cites %s, which neither DESIGN.md nor docs/lessons.md has", file, name)
			}
		}
	}
	t.Log(count, "citations")
	require.Greater(t, count, 500)
}

// The functions and types that DESIGN.md refers to, as in `a/b.go` (`F`), are in those files.
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

// The tests that .ci/run leaves out of a step exist: a pattern with a former name would leave out
// nothing.
func TestSkippedTests(t *testing.T) {
	script, err := os.ReadFile("../.ci/run")
	require.NoError(t, err)
	tests := map[string]bool{}
	files, err := repositoryFiles("..")
	require.NoError(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err)
		for _, name := range testNames.FindAllSubmatch(source, -1) {
			tests[string(name[1])] = true
		}
	}
	skipped := skippedNames.FindAllStringSubmatch(string(script), -1)
	require.Greater(t, len(skipped), 20)
	for _, name := range skipped {
		found := tests[name[1]]
		for test := range tests {
			found = found || name[2] != "" && strings.HasPrefix(test, name[1])
		}
		require.True(t, found, name[0])
	}
}
