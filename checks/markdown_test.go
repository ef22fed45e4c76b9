package checks

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Links in the repository's Markdown files lead to files and headings that exist.
func TestMarkdownLinks(t *testing.T) {
	files, err := repositoryFiles("..")
	require.NoError(t, err)
	require.Contains(t, files, "README.md")
	var broken []string
	links := 0
	for _, file := range files {
		if filepath.Ext(file) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		page := parseMarkdown(string(text))
		links += len(page.links)
		for _, link := range page.links {
			if err := followLink("..", file, link); err != nil {
				broken = append(broken, fmt.Sprintf("%s: %s: %v", file, link, err))
			}
		}
		for _, name := range page.files {
			if !names(files, file, name) {
				broken = append(broken, fmt.Sprintf("%s: there is no file %s", file, name))
			}
		}
	}
	require.Positive(t, links)
	require.Empty(t, broken, strings.Join(broken, "\n"))
}

// repositoryFiles returns the files below root, as slash-separated paths relative to it, without
// hidden directories except .ci and .github, and without bench's output.
func repositoryFiles(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch hidden := strings.HasPrefix(name, ".") && name != "." && name != ".ci" && name != ".github"; {
		case d.IsDir() && (hidden || name == "bench/out"):
			return fs.SkipDir
		case !d.IsDir():
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// markdown holds the references of a page, and their possible targets in it.
type markdown struct {
	links   []string
	files   []string // names of files in code spans
	anchors []string
}

var (
	fenced     = regexp.MustCompile("(?ms)^ {0,3}(```|~~~).*?^ {0,3}(```|~~~)[ \t]*$")
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^()<>\s]*(?:\([^()\s]*\))?[^()<>\s]*)>?(?:\s+["'(][^)]*)?\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]^]+\]:\s*<?(\S+?)>?(?:\s.*)?$`)
	heading    = regexp.MustCompile(`(?m)^ {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$`)
	anchor     = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	fileName   = regexp.MustCompile(`^[\w./-]*\w\.(go|md|sh|yml|java|mod|work)$`)
)

func parseMarkdown(text string) (page markdown) {
	text = comment.ReplaceAllString(strings.ReplaceAll(text, "\r\n", "\n"), "")
	text = fenced.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := slugOf(m[1])
		for n := 1; slices.Contains(page.anchors, slug); n++ {
			slug = fmt.Sprintf("%s-%d", slugOf(m[1]), n)
		}
		page.anchors = append(page.anchors, slug)
	}
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		page.anchors = append(page.anchors, m[1])
	}
	for _, span := range codeSpan.FindAllString(text, -1) {
		if name := strings.Trim(span, "`"); fileName.MatchString(name) {
			page.files = append(page.files, name)
		}
	}
	text = codeSpan.ReplaceAllString(text, "code")
	for _, m := range inlineLink.FindAllStringSubmatch(text, -1) {
		page.links = append(page.links, m[1])
	}
	for _, m := range definition.FindAllStringSubmatch(text, -1) {
		page.links = append(page.links, m[1])
	}
	return page
}

// slugOf returns a heading's anchor as forges generate it: lower case, with hyphens for spaces,
// and without punctuation.
func slugOf(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// followLink returns an error if the target of a link does not exist. Links to other sites are
// not followed.
func followLink(root, file, link string) error {
	u, err := url.Parse(link)
	if err != nil {
		return err
	}
	if u.Scheme != "" || u.Host != "" {
		return nil
	}
	target := filepath.Join(root, filepath.FromSlash(file))
	if u.Path != "" {
		target = filepath.Join(filepath.Dir(target), filepath.FromSlash(u.Path))
	}
	if inside, err := filepath.Rel(root, target); err != nil || strings.HasPrefix(inside, "..") {
		return fmt.Errorf("it leads out of the repository")
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("there is no such file")
	}
	if u.Fragment == "" || info.IsDir() || filepath.Ext(target) != ".md" {
		return nil
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	if !slices.Contains(parseMarkdown(string(text)).anchors, u.Fragment) {
		return fmt.Errorf("there is no such heading")
	}
	return nil
}

// names reports whether a name in a page is that of a file: relative to the root or to the
// page's directory, or, without a directory, anywhere.
func names(files []string, page, name string) bool {
	dir := ""
	if i := strings.LastIndexByte(page, '/'); i >= 0 {
		dir = page[:i+1]
	}
	return slices.ContainsFunc(files, func(f string) bool {
		return f == name || f == dir+name || strings.HasSuffix(f, "/"+name)
	})
}

func TestMarkdownIsParsed(t *testing.T) {
	page := parseMarkdown("# A *title*, with `code`: and [a link](x.md)\n\n## Twice\n\n## Twice\n\n" +
		"See [one](a.md), ![two](b/c.png \"title\"), [three](#twice-1), [four](<d.md>), [five](e_(f).md)\nand [six][6].\n\n" +
		"[6]: g.md\n\n`[no](link.md)` and `some.go`\n\n```\n[none](here.md)\n# not a heading\n```\n<a id=\"mark\"></a>\n")
	require.Equal(t, []string{"a-title-with-code-and-a-link", "twice", "twice-1", "mark"}, page.anchors)
	require.Equal(t, []string{"x.md", "a.md", "b/c.png", "#twice-1", "d.md", "e_(f).md", "g.md"}, page.links)
	require.Equal(t, []string{"some.go"}, page.files)
}

func TestBrokenLinksAreFound(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "docs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "docs", "a.md"), []byte("# One thing\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "b.md"), nil, 0o644))
	for link, ok := range map[string]bool{
		"a.md":                      true,
		"#one-thing":                true,
		"a.md#one-thing":            true,
		"../b.md":                   true,
		"../docs":                   true,
		"https://example.com/a#b":   true,
		"mailto:nobody@example.com": true,
		"#two":                      false,
		"../b.md#one-thing":         false,
		"b.md":                      false,
		"../../b.md":                false,
		"%zz":                       false,
	} {
		require.Equal(t, ok, followLink(root, "docs/a.md", link) == nil, link)
	}
}
