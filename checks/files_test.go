package checks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
)

// maxFile is the maximum size of a file in the repository, in bytes.
const maxFile = 1 << 20

// The files tracked by git are text, except pictures and the inputs of fuzz tests, and small
// enough for review. A compiled test or a profile added by mistake would be in every later
// clone.
func TestTrackedFiles(t *testing.T) {
	need.Program(t, "git", "git")
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no .git beside go.work: these files come from an archive, and nothing is known of what is tracked")
	}
	files, err := trackedFiles(root)
	require.NoError(t, err)
	require.Contains(t, files, "checks/go.mod")
	for _, err := range misplaced(t, root, files) {
		t.Error(err)
	}
}

// git is a git command in a directory. It uses the repository there, even if the environment
// names another one, as in a hook.
func git(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	return cmd
}

// trackedFiles returns the files tracked by git below root, as slash-separated paths relative to
// it.
func trackedFiles(root string) ([]string, error) {
	out, err := git(root, "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// misplaced returns an error for each file that should not be tracked.
func misplaced(t *testing.T, root string, files []string) (list []error) {
	t.Helper()
	for _, file := range files {
		name := filepath.Join(root, filepath.FromSlash(file))
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		if !info.Mode().IsRegular() {
			continue
		}
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if err := checkTracked(file, content); err != nil {
			list = append(list, err)
		}
	}
	return list
}

// checkTracked returns an error if a file with this content should not be tracked.
func checkTracked(file string, content []byte) error {
	if len(content) > maxFile {
		return fmt.Errorf("%s has %d bytes, must be at most %d", file, len(content), maxFile)
	}
	if utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
		return nil
	}
	pictures := strings.HasPrefix(file, "docs/") || strings.HasPrefix(file, "bench/plots/")
	switch {
	case pictures && path.Ext(file) == ".png" && bytes.HasPrefix(content, []byte("\x89PNG\r\n\x1a\n")):
		return nil
	case strings.Contains("/"+file, "/testdata/fuzz/"):
		return nil
	}
	return fmt.Errorf("%s is binary; only PNG in docs and bench/plots, and testdata/fuzz, may be", file)
}

const elf = "\x7fELF\x02\x01\x01\x00\xff"

func TestUntrackableFilesAreFound(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n\x00"
	limit := strings.Repeat("x", maxFile)
	for _, c := range []struct {
		file, content string
		want          string // in the error; empty if there is none
	}{
		{"README.md", "# limbo, µs\n", ""},
		{"LICENSE", "", ""},
		{"docs/a.png", png, ""},
		{"docs/figures/a.png", png, ""},
		{"bench/plots/a.png", png, ""},
		{"testdata/fuzz/FuzzA/1", elf, ""},
		{"a/testdata/fuzz/FuzzA/1", elf, ""},
		{"a.txt", limit, ""},
		{"a.txt", limit + "x", "a.txt has 1048577 bytes, must be at most 1048576"},
		{"docs/a.png", png + limit, "must be at most"},
		{"testdata/fuzz/FuzzA/1", limit + "x", "must be at most"},
		{"calls.test", elf, "calls.test is binary"},
		{"cpu.prof", "\x1f\x8b\x08", "cpu.prof is binary"},
		{"zeros", "a\x00b", "zeros is binary"},
		{"docs/a.png", elf, "docs/a.png is binary"},
		{"docs/a.gif", "GIF89a\xff", "docs/a.gif is binary"},
		{"a.png", png, "a.png is binary"},
		{"mytestdata/fuzz/1", elf, "is binary"},
	} {
		err := checkTracked(c.file, []byte(c.content))
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// Only tracked files count.
func TestTrackedFilesOfARepository(t *testing.T) {
	need.Program(t, "git", "git")
	root := t.TempDir()
	t.Setenv("GIT_DIR", filepath.Join(t.TempDir(), "another")) // as in a hook
	for file, content := range map[string]string{"a.test": elf, "a.go": "package a\n", "untracked.test": elf, "deleted.test": elf} {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(content), 0o644))
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "a.go", "a.test", "deleted.test"}} {
		out, err := git(root, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Remove(filepath.Join(root, "deleted.test")))
	files, err := trackedFiles(root)
	require.NoError(t, err)
	require.Equal(t, []string{"a.go", "a.test", "deleted.test"}, files)
	found := misplaced(t, root, files)
	require.Len(t, found, 1)
	require.ErrorContains(t, found[0], "a.test is binary")
}
