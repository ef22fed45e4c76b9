package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/modfile"

	"github.com/seed-782fa212/limbo/checks/internal/modules"
)

// platforms are those whose packages link different modules: Pebble compresses with a C library
// if there is a C compiler.
var platforms = [][]string{
	{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0"},
	{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1"},
	{"GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=1"},
	{"GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0"},
}

// thirdParty is a module that programs link because they import one of limbo's.
type thirdParty struct {
	path string
	// For the directory of each version, the directories of the packages that are linked: two of
	// limbo's modules can select different versions.
	packages map[string]map[string]bool
	by       map[string]bool // the directories of limbo's modules that link it
}

// pkg is what the go command says of a package.
type pkg struct {
	Dir      string
	Standard bool
	Module   *struct{ Path, Dir string }
}

// linked returns the third-party modules that limbo's published ones link on any platform, sorted
// by path. The versions are those of each go.mod, as for those who import it, not the workspace's.
func linked(root string) ([]*thirdParty, error) {
	dirs, err := modules.Dirs(root)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	core, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, err
	}
	found := map[string]*thirdParty{}
	var mu sync.Mutex // of found and errs
	var errs []error
	var wg sync.WaitGroup
	for _, dir := range dirs {
		if !modules.Published(dir) {
			continue
		}
		for _, platform := range platforms {
			wg.Go(func() {
				packages, err := list(filepath.Join(root, dir), platform)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					errs = append(errs, err)
					return
				}
				add(found, core.Module.Mod.Path, dir, packages)
			})
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *thirdParty) int { return strings.Compare(a.path, b.path) }), nil
}

// list returns the packages of the module in dir, and all that they import, on a platform.
func list(dir string, platform []string) ([]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./...")
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), platform...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s for %s: %w: %s", dir, strings.Join(platform, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	var packages []pkg
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := in.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// add adds to found the third-party modules of packages, which the module in the directory by
// links.
func add(found map[string]*thirdParty, core, by string, packages []pkg) {
	for _, p := range packages {
		if p.Standard || p.Module == nil || p.Module.Path == core || strings.HasPrefix(p.Module.Path, core+"/") {
			continue
		}
		m := found[p.Module.Path]
		if m == nil {
			m = &thirdParty{path: p.Module.Path, packages: map[string]map[string]bool{}, by: map[string]bool{}}
			found[m.path] = m
		}
		if m.packages[p.Module.Dir] == nil {
			m.packages[p.Module.Dir] = map[string]bool{}
		}
		m.packages[p.Module.Dir][p.Dir] = true
		m.by[by] = true
	}
}
