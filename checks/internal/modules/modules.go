// Package modules lists the modules of the repository.
package modules

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
)

// unpublished holds the directories of the modules that a release does not tag.
var unpublished = []string{"bench", "checks", "examples"}

// Published reports whether a release tags the module in a directory.
func Published(dir string) bool { return !slices.Contains(unpublished, dir) }

// Dirs returns the directories of the modules that go.work in root joins, relative to root, with
// slashes, in go.work's order; "." is the core's.
func Dirs(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, path.Clean(use.Path))
	}
	return dirs, nil
}
