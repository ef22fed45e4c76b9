package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/seed-782fa212/limbo/checks/internal/modules"
)

// mod is a module of the repository.
type mod struct {
	dir  string // relative to the repository, with slashes; "." is the core's
	path string
	file *modfile.File
}

func (m *mod) published() bool { return modules.Published(m.dir) }

// tag returns the name of the tag with which the go command finds a version of the module.
func (m *mod) tag(version string) string { return path.Join(m.dir, version) }

// name returns the name of a file of the module for messages.
func (m *mod) name(file string) string { return path.Join(m.dir, file) }

// readModules returns the modules that go.work in root joins: those that others require first.
func readModules(root string) ([]*mod, error) {
	dirs, err := modules.Dirs(root)
	if err != nil {
		return nil, err
	}
	var mods []*mod
	for _, dir := range dirs {
		m := &mod{dir: dir}
		text, err := os.ReadFile(filepath.Join(root, m.dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		if m.file, err = modfile.Parse(m.name("go.mod"), text, nil); err != nil {
			return nil, err
		}
		if m.file.Module == nil || m.file.Go == nil {
			return nil, fmt.Errorf("%s has no module line or no go line, must have both", m.name("go.mod"))
		}
		m.path = m.file.Module.Mod.Path
		mods = append(mods, m)
	}
	core := slices.IndexFunc(mods, func(m *mod) bool { return m.dir == "." })
	if core < 0 {
		return nil, fmt.Errorf("go.work does not use the module in its own directory")
	}
	for _, m := range mods {
		if want := path.Join(mods[core].path, m.dir); m.path != want {
			return nil, fmt.Errorf("%s has module %s, must be %s", m.name("go.mod"), m.path, want)
		}
	}
	return inOrder(mods)
}

// inOrder sorts modules so that each comes after those that it requires.
func inOrder(mods []*mod) (sorted []*mod, err error) {
	for len(sorted) < len(mods) {
		before := len(sorted)
		for _, m := range mods {
			waits := func(r *modfile.Require) bool { return find(mods, r.Mod.Path) != nil && find(sorted, r.Mod.Path) == nil }
			if !slices.Contains(sorted, m) && !slices.ContainsFunc(m.file.Require, waits) {
				sorted = append(sorted, m)
			}
		}
		if len(sorted) == before {
			var cycle []string
			for _, m := range mods {
				if !slices.Contains(sorted, m) {
					cycle = append(cycle, m.path)
				}
			}
			return nil, fmt.Errorf("modules require each other in a cycle: %s", strings.Join(cycle, ", "))
		}
	}
	return sorted, nil
}

// find returns the module with the path, or nil.
func find(mods []*mod, path string) *mod {
	if i := slices.IndexFunc(mods, func(m *mod) bool { return m.path == path }); i >= 0 {
		return mods[i]
	}
	return nil
}

// onlyPublished returns the published ones of mods.
func onlyPublished(mods []*mod) []*mod {
	return slices.DeleteFunc(slices.Clone(mods), func(m *mod) bool { return !m.published() })
}

// checkVersion returns an error unless a release of the modules can have the version.
func checkVersion(version string) error {
	if semver.Canonical(version) != version || !slices.Contains([]string{"v0", "v1"}, semver.Major(version)) || module.IsPseudoVersion(version) {
		return fmt.Errorf("version is %q, must be v0.MINOR.PATCH or v1.MINOR.PATCH, with or without a pre-release such as -rc.1", version)
	}
	return nil
}

// verify returns an error if the go.mod file of a published module would not do for others at the
// version: replace lines have no effect there, or are an error of go run and go install.
func verify(mods []*mod, version string) error {
	core := mods[slices.IndexFunc(mods, func(m *mod) bool { return m.dir == "." })]
	for _, m := range onlyPublished(mods) {
		for _, r := range m.file.Require {
			if r.Mod.Path != core.path && !strings.HasPrefix(r.Mod.Path, core.path+"/") {
				continue
			}
			switch other := find(mods, r.Mod.Path); {
			case other == nil || !other.published():
				return fmt.Errorf("%s requires %s, which is not published", m.name("go.mod"), r.Mod.Path)
			case r.Mod.Version != version:
				return fmt.Errorf("%s requires %s at %s, must be %s", m.name("go.mod"), r.Mod.Path, r.Mod.Version, version)
			}
		}
		for _, r := range m.file.Replace {
			return fmt.Errorf("%s replaces %s, must replace nothing", m.name("go.mod"), r.Old.Path)
		}
		for _, x := range m.file.Exclude {
			return fmt.Errorf("%s excludes %s at %s, must exclude nothing", m.name("go.mod"), x.Mod.Path, x.Mod.Version)
		}
	}
	return nil
}
