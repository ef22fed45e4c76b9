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
	fence  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	marked = regexp.MustCompile(`(?ms)^(\t*)// (README|observe/README)\n(.*?)^\t*// end\n`)
	marks  = regexp.MustCompile(`(?m)^\t*// (README|observe/README)$`)
)

// The Go blocks in README.md and observe/README.md are exactly those of this package's files.
func TestBlocks(t *testing.T) {
	snippets := map[string][]string{} // by page
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
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
	for _, name := range []string{"README.md", "observe/README.md"} {
		page, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		var blocks []string
		for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
			blocks = append(blocks, m[1])
		}
		require.Len(t, blocks, strings.Count(string(page), "```go"), name)
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
