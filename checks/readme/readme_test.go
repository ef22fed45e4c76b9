package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fence  = regexp.MustCompile("(?ms)^```(?:go|java)\n(.*?)^```$")
	begun  = regexp.MustCompile("(?m)^```(go|java)")
	marked = regexp.MustCompile(`(?ms)^([\t ]*)// (README|observe/README|docs/migrating)\n(.*?)^[\t ]*// end\n`)
	marks  = regexp.MustCompile(`(?m)^[\t ]*// (README|observe/README|docs/migrating)$`)
)

// The Go and Java blocks in README.md, observe/README.md and docs/migrating.md are exactly those of
// this package's files and, for libraries that only module bench requires, of bench's.
func TestBlocks(t *testing.T) {
	snippets := map[string][]string{} // by page
	var files []string
	for _, pattern := range []string{"*_test.go", "testdata/*", "../../bench/migrating*_test.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		files = append(files, found...)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		found := marked.FindAllStringSubmatch(string(source), -1)
		require.Len(t, found, len(marks.FindAll(source, -1)), file)
		for _, m := range found {
			page := m[2] + ".md"
			snippets[page] = append(snippets[page], strings.TrimRight(dedent(m[3], m[1]), "\n")+"\n")
		}
	}
	for _, name := range []string{"README.md", "observe/README.md", "docs/migrating.md"} {
		page, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		var blocks []string
		for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
			blocks = append(blocks, m[1])
		}
		require.Len(t, blocks, len(begun.FindAll(page, -1)), name)
		require.NotEmpty(t, blocks, name)
		for _, b := range blocks {
			if !slices.Contains(snippets[name], b) {
				t.Errorf("%s has a block that is in no file here:\n%s", name, b)
			}
		}
		for _, s := range snippets[name] {
			if !slices.Contains(blocks, s) {
				t.Errorf("this is not in %s:\n%s", name, s)
			}
		}
	}
}

// dedent removes an indentation from each line.
func dedent(text, indentation string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indentation)
	}
	return strings.Join(lines, "")
}
