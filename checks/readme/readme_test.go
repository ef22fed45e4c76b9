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
	marked = regexp.MustCompile(`(?ms)^(\t*)// README\n(.*?)^\t*// end\n`)
)

// The blocks of Go in README.md are those of this package's files, and all of them.
func TestBlocks(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	var blocks []string
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, m[1])
	}
	require.Len(t, blocks, strings.Count(string(page), "```go"))
	require.NotEmpty(t, blocks)

	var snippets []string
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		found := marked.FindAllStringSubmatch(string(source), -1)
		require.Len(t, found, strings.Count(string(source), "// README\n"), file)
		for _, m := range found {
			snippets = append(snippets, strings.TrimRight(dedent(m[2], m[1]), "\n")+"\n")
		}
	}
	for _, b := range blocks {
		if !slices.Contains(snippets, b) {
			t.Errorf("README.md has a block that is in no file here:\n%s", b)
		}
	}
	for _, s := range snippets {
		if !slices.Contains(blocks, s) {
			t.Errorf("this is not in README.md:\n%s", s)
		}
	}
}

// dedent takes an indentation off each line.
func dedent(text, indentation string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indentation)
	}
	return strings.Join(lines, "")
}
