package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// The tests use repositories of their own, git without the user's settings, and no network.
func TestMain(m *testing.M) {
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		panic(err)
	}
	forgetGit()
	config := filepath.Join(temp, "gitconfig")
	if err := os.WriteFile(config, []byte("[user]\n\tname = Test\n\temail = test@example.com\n[init]\n\tdefaultBranch = main\n"), 0o644); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": config, "GIT_CONFIG_NOSYSTEM": "1",
		"GOMODCACHE": filepath.Join(temp, "cache"), "GOPROXY": "off", "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local", "GOENV": "off",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(temp)
	os.Exit(code)
}

// files are those of a repository with three published modules and one that is not.
var files = map[string]string{
	"LICENSE":      "Do what you like.\n",
	".gitignore":   "*.out\n",
	"CHANGELOG.md": "# Changelog\n\n## 0.1.0 - unreleased\n\nThe first.\n",
	"go.work":      "go 1.25.0\n\nuse (\n\t.\n\t./checks\n\t./durable\n\t./durable/server\n)\n",

	"go.mod":   "module github.com/example/clock\n\ngo 1.25.0\n",
	"clock.go": "package clock\n\nconst Name = \"clock\"\n",

	"durable/go.mod": `module github.com/example/clock/durable

go 1.25.0

require github.com/example/clock v0.0.0

replace github.com/example/clock => ../
`,
	"durable/durable.go":      "package durable\n\nimport \"github.com/example/clock\"\n\nconst Name = \"durable \" + clock.Name\n",
	"durable/durable_test.go": "package durable\n\nimport \"testing\"\n\nfunc TestName(t *testing.T) { t.Log(Name) }\n",

	"durable/server/go.mod": `module github.com/example/clock/durable/server

go 1.25.0

require github.com/example/clock/durable v0.0.0

require github.com/example/clock v0.0.0 // indirect

replace github.com/example/clock => ../../

replace github.com/example/clock/durable => ../
`,
	"durable/server/main.go": `package main

import (
	"embed"
	"fmt"

	"github.com/example/clock/durable"
)

//go:embed page
var page embed.FS

func main() { fmt.Println(durable.Name, page) }
`,
	"durable/server/page/index.html": "<html>\n",

	"checks/go.mod": `module github.com/example/clock/checks

go 1.25.0

require github.com/example/clock/durable v0.0.0

require github.com/example/clock v0.0.0 // indirect

replace github.com/example/clock => ../

replace github.com/example/clock/durable => ../durable
`,
	"checks/checks.go": "package checks\n\nimport \"github.com/example/clock/durable\"\n\nconst Name = \"checks of \" + durable.Name\n",
}

// repository returns a repository that holds the files in one commit.
func repository(t *testing.T) string {
	t.Helper()
	need.Program(t, "git", "git")
	root := filepath.Join(t.TempDir(), "repository")
	require.NoError(t, os.Mkdir(root, 0o755))
	for name, text := range files {
		write(t, root, name, text)
	}
	mustGit(t, root, "init", "-q")
	mustGit(t, root, "add", "-A")
	mustGit(t, root, "commit", "-q", "-m", "all")
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// edit replaces a part of a file, which must be there.
func edit(t *testing.T, root, name, from, to string) {
	t.Helper()
	text := read(t, root, name)
	require.Contains(t, text, from)
	write(t, root, name, strings.ReplaceAll(text, from, to))
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	require.NoError(t, err)
	return out
}
