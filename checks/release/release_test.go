package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const day = "2026-01-31"

func TestRelease(t *testing.T) {
	root := repository(t)
	before := mustGit(t, root, "rev-parse", "HEAD")
	var out strings.Builder
	require.NoError(t, release(root, "v0.1.0", day, false, &out))

	require.Equal(t, "durable/server/v0.1.0\ndurable/v0.1.0\nv0.1.0", mustGit(t, root, "tag", "--list"))
	require.Contains(t, out.String(), "\n\tgit push --atomic origin main v0.1.0 durable/v0.1.0 durable/server/v0.1.0\n")
	require.Empty(t, mustGit(t, root, "status", "--porcelain"))
	require.Equal(t, before, mustGit(t, root, "rev-parse", "HEAD~2"))
	for _, tag := range []string{"v0.1.0", "durable/v0.1.0", "durable/server/v0.1.0"} {
		require.Equal(t, mustGit(t, root, "rev-parse", "HEAD~1"), mustGit(t, root, "rev-parse", tag+"^{commit}"))
	}

	show := func(name string) string { return mustGit(t, root, "show", "v0.1.0:"+name) + "\n" }
	require.Contains(t, show("CHANGELOG.md"), "\n## 0.1.0 - "+day+"\n")
	require.Equal(t, "module github.com/example/clock/durable\n\ngo 1.25.0\n\nrequire github.com/example/clock v0.1.0\n", show("durable/go.mod"))
	require.Equal(t, "module github.com/example/clock/durable/server\n\ngo 1.25.0\n\nrequire github.com/example/clock/durable v0.1.0\n\nrequire github.com/example/clock v0.1.0 // indirect\n", show("durable/server/go.mod"))
	require.Equal(t, strings.ReplaceAll(files["checks/go.mod"], "v0.0.0", "v0.1.0"), show("checks/go.mod"))
	require.Regexp(t, `^github.com/example/clock v0.1.0 h1:\S+
github.com/example/clock v0.1.0/go.mod h1:\S+
github.com/example/clock/durable v0.1.0 h1:\S+
github.com/example/clock/durable v0.1.0/go.mod h1:\S+
$`, show("durable/server/go.sum"))

	// For development there is what was before, with the version and the date.
	require.Equal(t, "CHANGELOG.md\nchecks/go.mod\ndurable/go.mod\ndurable/server/go.mod", mustGit(t, root, "diff", "--name-only", before, "HEAD"))
	require.Equal(t, strings.ReplaceAll(files["durable/server/go.mod"], "v0.0.0", "v0.1.0"), read(t, root, "durable/server/go.mod"))

	require.ErrorContains(t, release(root, "v0.1.0", day, false, io.Discard), "tag durable/server/v0.1.0, durable/v0.1.0, v0.1.0 exists already")
	require.ErrorContains(t, release(root, "v0.0.9", day, false, io.Discard), "version is v0.0.9, must be higher than v0.1.0")
	require.ErrorContains(t, release(root, "v0.2.0", day, false, io.Discard), `CHANGELOG.md begins with "## 0.1.0 - 2026-01-31", must be "## 0.2.0 - unreleased"`)

	edit(t, root, "CHANGELOG.md", "## 0.1.0", "## 0.2.0 - unreleased\n\n## 0.1.0")
	mustGit(t, root, "commit", "-q", "-a", "-m", "next")
	require.NoError(t, release(root, "v0.2.0", day, false, io.Discard))
	require.Contains(t, mustGit(t, root, "show", "durable/v0.2.0:durable/go.mod"), "require github.com/example/clock v0.2.0")
	require.NotContains(t, mustGit(t, root, "show", "durable/v0.2.0:durable/go.sum"), "v0.1.0")
}

// A release that fails, and one that is only tried, leave the repository as it was.
func TestReleaseLeavesNothing(t *testing.T) {
	root := repository(t)
	head := mustGit(t, root, "rev-parse", "HEAD")
	unchanged := func() {
		t.Helper()
		require.Equal(t, head, mustGit(t, root, "rev-parse", "HEAD"))
		require.Empty(t, mustGit(t, root, "tag", "--list"))
	}
	require.NoError(t, release(root, "v0.1.0", day, true, io.Discard))
	unchanged()
	for _, version := range []string{"0.1.0", "v0.1", "v2.0.0", "v0.1.0+linux", "v0.0.0-20260101000000-0123456789ab", ""} {
		require.ErrorContains(t, release(root, version, day, false, io.Discard), `must be v0.MINOR.PATCH or v1.MINOR.PATCH`, version)
	}
	unchanged()

	write(t, root, "new.txt", "new")
	require.ErrorContains(t, release(root, "v0.1.0", day, false, io.Discard), "the working tree is not clean, must have no changes and no new files:\n?? new.txt")
	unchanged()
	require.NoError(t, os.Remove(filepath.Join(root, "new.txt")))

	mustGit(t, root, "checkout", "-q", "--detach")
	require.ErrorContains(t, release(root, "v0.1.0", day, false, io.Discard), "HEAD must be a branch")
	mustGit(t, root, "checkout", "-q", "main")

	edit(t, root, "durable/go.mod", "v0.0.0\n", "v0.0.0\n\nrequire github.com/example/clock/checks v0.0.0\n\nreplace github.com/example/clock/checks => ../checks\n")
	edit(t, root, "checks/go.mod", "require github.com/example/clock/durable v0.0.0", "")
	mustGit(t, root, "commit", "-q", "-a", "-m", "wrong")
	head = mustGit(t, root, "rev-parse", "HEAD")
	require.ErrorContains(t, release(root, "v0.1.0", day, false, io.Discard), "durable/go.mod requires github.com/example/clock/checks, which is not published")
	unchanged()
}

// A release works in a worktree, whose .git is a file.
func TestReleaseOfWorktree(t *testing.T) {
	root := repository(t)
	tree := filepath.Join(t.TempDir(), "tree")
	mustGit(t, root, "worktree", "add", "-q", "-b", "stable", tree)
	var out strings.Builder
	require.NoError(t, release(tree, "v0.1.0", day, false, &out))
	require.Contains(t, out.String(), "git push --atomic origin stable v0.1.0")
	require.Equal(t, "release: v0.1.0", mustGit(t, root, "show", "-s", "--format=%s", "durable/v0.1.0^{commit}"))
}

// The hashes in go.sum are those of the go command when it downloads the tags without a proxy.
func TestSums(t *testing.T) {
	root := repository(t)
	require.NoError(t, release(root, "v0.1.0", day, false, io.Discard))
	config := filepath.Join(t.TempDir(), "gitconfig")
	write(t, filepath.Dir(config), "gitconfig", "[url \""+fileURL(root)+"\"]\n\tinsteadOf = https://github.com/example/clock\n")
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/example/clock@v0.1.0", "github.com/example/clock/durable@v0.1.0")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+config, "GOMODCACHE="+t.TempDir(), "GOPROXY=direct", "GOSUMDB=off", "GOWORK=off", "GOVCS=*:git")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var lines strings.Builder
	for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
		var m struct{ Path, Version, Sum, GoModSum string }
		require.NoError(t, in.Decode(&m))
		lines.WriteString(m.Path + " " + m.Version + " " + m.Sum + "\n" + m.Path + " " + m.Version + "/go.mod " + m.GoModSum + "\n")
	}
	require.Equal(t, lines.String(), mustGit(t, root, "show", "v0.1.0:durable/server/go.sum")+"\n")
}

func TestNextVersion(t *testing.T) {
	for _, c := range []struct {
		heading, version string
		unreleased       bool
		err              string
	}{
		{"## 0.1.0 - unreleased", "v0.1.0", true, ""},
		{"## 0.1.0-rc.1 - unreleased", "v0.1.0-rc.1", true, ""},
		{"## 0.1.9 - 2026-01-31", "v0.1.10", false, ""},
		{"## 0.1.0-rc.1 - 2026-01-31", "v0.1.1", false, ""},
		{"## 2.0.0 - unreleased", "", false, `CHANGELOG.md: version is "v2.0.0", must be`},
		{"## 0.1.0", "", false, `CHANGELOG.md has no heading "## VERSION - DATE"`},
	} {
		dir := t.TempDir()
		write(t, dir, "CHANGELOG.md", "# Changelog\n\n"+c.heading+"\n\nText.\n")
		version, unreleased, err := nextVersion(dir)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.version, version)
		require.Equal(t, c.unreleased, unreleased)
	}
}

func TestModules(t *testing.T) {
	for name, c := range map[string]struct{ file, from, to, err string }{
		"cycle":     {"go.mod", "1.25.0\n", "1.25.0\n\nrequire github.com/example/clock/durable v0.0.0\n", "modules require each other in a cycle: github.com/example/clock, github.com/example/clock/checks, github.com/example/clock/durable, github.com/example/clock/durable/server"},
		"name":      {"durable/go.mod", "clock/durable\n", "clock/lasting\n", "durable/go.mod has module github.com/example/clock/lasting, must be github.com/example/clock/durable"},
		"no core":   {"go.work", "\t.\n", "", "go.work does not use the module in its own directory"},
		"no module": {"durable/go.mod", "module github.com/example/clock/durable\n", "", "durable/go.mod has no module line or no go line, must have both"},
	} {
		t.Run(name, func(t *testing.T) {
			root := repository(t)
			edit(t, root, c.file, c.from, c.to)
			_, err := readModules(root)
			require.EqualError(t, err, c.err)
		})
	}
}

func TestArguments(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"-help"}, &out))
	require.Contains(t, out.String(), "-rehearse folder")
	require.EqualError(t, run(t.Context(), nil, io.Discard), "there are 0 arguments, must be one, the version")
	require.EqualError(t, run(t.Context(), []string{"-date", "31.1.", "v0.1.0"}, io.Discard), `-date is "31.1.", must be a day such as 2026-01-31`)
}

// The real modules are those that RELEASING.md lists.
func TestPublished(t *testing.T) {
	root := filepath.Join("..", "..")
	mods, err := readModules(root)
	require.NoError(t, err)
	var dirs []string
	for _, m := range onlyPublished(mods) {
		dirs = append(dirs, m.dir)
	}
	page := regexp.MustCompile(`(?s)published modules are (.*?)\.\s`).FindStringSubmatch(read(t, root, "RELEASING.md"))
	require.NotNil(t, page)
	listed := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(page[1], -1)
	var names []string
	for _, l := range listed {
		names = append(names, l[1])
	}
	require.ElementsMatch(t, names, dirs)
}
