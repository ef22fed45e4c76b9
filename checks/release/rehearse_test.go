package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A rehearsal is of the working tree, uncommitted changes included, and changes nothing there.
func TestRehearsal(t *testing.T) {
	root := repository(t)
	edit(t, root, "clock.go", `"clock"`, `"clock 2"`)
	write(t, root, "new.go", "package clock\n\nconst New = Name\n")
	edit(t, root, "durable/durable.go", "clock.Name", "clock.New")
	before := mustGit(t, root, "status", "--porcelain")
	dir := filepath.Join(t.TempDir(), "rehearsal")
	var out strings.Builder
	require.NoError(t, rehearse(t.Context(), root, dir, day, []string{"go1.24.0", runtime.Version()}, &out))
	require.Regexp(t, `(?m)^github.com/example/clock/durable/server@v0.1.0, from its zip: tidy, builds, vets with `+regexp.QuoteMeta(runtime.Version())+` \(\d+ s\)$`, out.String())
	require.Equal(t, before, mustGit(t, root, "status", "--porcelain"))

	// An outsider runs a program of the release.
	cmd := exec.Command("go", "run", "github.com/example/clock/durable/server@v0.1.0")
	cmd.Dir = t.TempDir()
	cmd.Env = os.Environ()
	for line := range strings.Lines(read(t, dir, "env")) {
		name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		require.True(t, found)
		cmd.Env = append(cmd.Env, name+"="+strings.Trim(value, "'"))
	}
	got, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", got)
	require.Contains(t, string(got), "durable clock 2")
	require.FileExists(t, filepath.Join(dir, "modules", "durable", "server@v0.1.0", "LICENSE"))

	require.ErrorContains(t, rehearse(t.Context(), root, filepath.Join(t.TempDir(), "old"), day, []string{"go1.24.0"}, io.Discard), "go is 1.25.0 in go.mod, must be at most that of go1.24.0")
}

// Each defect of a release makes the rehearsal fail.
func TestDefects(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, root string) // changes the working tree
		after  func(t *testing.T, tree string) // changes the release
		err    string                          // a pattern
	}{
		"none": {},
		"a wrong requirement": {
			after: func(t *testing.T, tree string) {
				edit(t, tree, "durable/server/go.mod", "clock/durable v0.1.0", "clock/durable v0.0.9")
			},
			err: `durable/server/go.mod requires github.com/example/clock/durable at v0.0.9, must be v0.1.0`,
		},
		"a requirement left out": {
			after: func(t *testing.T, tree string) {
				edit(t, tree, "durable/go.mod", "require github.com/example/clock v0.1.0", "")
			},
			err: `clock/durable@v0.1.0, from its zip: go build .*\n.*cannot find module providing package github.com/example/clock`,
		},
		"a replace line": {
			after: func(t *testing.T, tree string) {
				edit(t, tree, "durable/go.mod", "v0.1.0\n", "v0.1.0\n\nreplace github.com/example/clock => ../\n")
			},
			err: `durable/go.mod replaces github.com/example/clock, must replace nothing`,
		},
		"an exclude line": {
			after: func(t *testing.T, tree string) {
				edit(t, tree, "durable/go.mod", "v0.1.0\n", "v0.1.0\n\nexclude github.com/example/clock v0.0.9\n")
			},
			err: `durable/go.mod excludes github.com/example/clock at v0.0.9, must exclude nothing`,
		},
		"a missing go.sum line": {
			after: func(t *testing.T, tree string) {
				text := read(t, tree, "durable/server/go.sum")
				write(t, tree, "durable/server/go.sum", regexp.MustCompile(`(?m)^github.com/example/clock/durable v0.1.0 .*\n`).ReplaceAllString(text, ""))
			},
			err: `clock/durable/server@v0.1.0, from its zip: go build .*\n.*missing go.sum entry`,
		},
		"a wrong hash in go.sum": {
			// The hash of durable is the one before its go.sum had the core's.
			after: func(t *testing.T, tree string) { write(t, tree, "durable/more.go", "package durable\n") },
			err:   `clock/durable/server@v0.1.0, from its zip: go build .*\n(?s).*checksum mismatch`,
		},
		"an embedded file that zips exclude": {
			before: func(t *testing.T, root string) {
				write(t, root, "durable/server/page/vendor/library/library.js", "let a\n")
				edit(t, root, "durable/server/main.go", "go:embed page", "go:embed page/vendor/library")
			},
			err: `clock/durable/server@v0.1.0, from its zip: go build .*\n(?s).*pattern page/vendor/library: no matching files found`,
		},
		"an embedded file that git ignores": {
			before: func(t *testing.T, root string) {
				write(t, root, "durable/server/page.out", "text\n")
				edit(t, root, "durable/server/main.go", "go:embed page", "go:embed page page.out")
			},
			err: `clock/durable/server@v0.1.0, from its zip: go build .*\n(?s).*pattern page.out: no matching files found`,
		},
		"an import of an unpublished module": {
			before: func(t *testing.T, root string) {
				write(t, root, "checks/tool/tool.go", "package tool\n")
				edit(t, root, "durable/durable_test.go", `import "testing"`, "import (\n\t\"testing\"\n\n\t_ \"github.com/example/clock/checks/tool\"\n)")
			},
			err: `clock/durable@v0.1.0, from its zip: go vet .*\n(?s).*cannot find module providing package github.com/example/clock/checks/tool`,
		},
		"a requirement of an unpublished module": {
			before: func(t *testing.T, root string) {
				write(t, root, "bench/go.mod", "module github.com/example/clock/bench\n\ngo 1.25.0\n")
				edit(t, root, "go.work", "\t./checks\n", "\t./bench\n\t./checks\n")
				edit(t, root, "durable/go.mod", "v0.0.0\n", "v0.0.0\n\nrequire github.com/example/clock/bench v0.0.0\n\nreplace github.com/example/clock/bench => ../bench\n")
			},
			err: `durable/go.mod requires github.com/example/clock/bench, which is not published`,
		},
		"a module that go.mod requires without need": {
			after: func(t *testing.T, tree string) {
				write(t, tree, "durable/durable.go", "package durable\n\nconst Name = \"\"\n")
			},
			err: `clock/durable@v0.1.0, from its zip: go mod tidy -diff`,
		},
		"a test that does not compile": {
			after: func(t *testing.T, tree string) { write(t, tree, "wrong_test.go", "package clock\n\nvar _ = Nobody\n") },
			err:   `clock@v0.1.0, from its zip: go vet .*\n(?s).*undefined: Nobody`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := repository(t)
			if c.before != nil {
				c.before(t, root)
				if !strings.Contains(c.err, "requires") { // in the workspace the defect does not show
					cmd := exec.Command("go", "vet", "./...", "./durable/...", "./durable/server/...")
					cmd.Dir = root
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
			}
			dir := t.TempDir()
			tree := filepath.Join(dir, "tree")
			require.NoError(t, snapshot(root, tree))
			err := prepare(tree, "v0.1.0")
			if err == nil {
				if c.after != nil {
					c.after(t, tree)
				}
				mustGit(t, tree, "add", "-A")
				mustGit(t, tree, "commit", "-q", "-m", "release")
				o, failed := newOutsider(t.Context(), dir)
				require.NoError(t, failed)
				err = o.check(t.Context(), tree, "v0.1.0", nil, io.Discard)
			}
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.Regexp(t, c.err, err.Error())
		})
	}
}
