package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// prepare changes the files of the repository in dir, which no one else uses, to those of a
// release, and stages them: all modules require the published ones at the version, and the
// published ones replace none of them, but have their hashes. It does not touch the changelog.
func prepare(dir, version string) error {
	mods, err := readModules(dir)
	if err != nil {
		return err
	}
	published := onlyPublished(mods)
	for _, m := range mods {
		if err := setVersions(m, published, version); err != nil {
			return err
		}
		if m.published() {
			for _, other := range published {
				if err := m.file.DropReplace(other.path, ""); err != nil {
					return err
				}
			}
		}
		if err := writeModule(dir, m); err != nil {
			return err
		}
	}
	if err := verify(mods, version); err != nil {
		return err
	}

	// The hash of a module includes its go.sum, which has the hashes of those before.
	sums := map[string][]string{}
	for _, m := range published {
		var lines []string
		for _, r := range m.file.Require {
			lines = append(lines, sums[r.Mod.Path]...)
		}
		if err := writeSums(filepath.Join(dir, m.dir), published, lines); err != nil {
			return err
		}
		if sums[m.path], err = sumLines(dir, m, version); err != nil {
			return err
		}
	}
	return nil
}

// develop changes the release in the repository in dir to the tree for development after it: the
// files of the published modules are those of the commit before, but require the version.
func develop(dir, before, version string) error {
	mods, err := readModules(dir)
	if err != nil {
		return err
	}
	for _, m := range onlyPublished(mods) {
		for _, name := range []string{m.name("go.mod"), m.name("go.sum")} {
			listed, err := git(dir, "ls-tree", "--name-only", before, name)
			if err != nil {
				return err
			}
			restore := []string{"checkout", "-q", before, "--", name}
			if listed == "" {
				restore = []string{"rm", "-q", "--ignore-unmatch", name}
			}
			if _, err := git(dir, restore...); err != nil {
				return err
			}
		}
	}
	if mods, err = readModules(dir); err != nil {
		return err
	}
	for _, m := range mods {
		if err := setVersions(m, onlyPublished(mods), version); err != nil {
			return err
		}
		if err := writeModule(dir, m); err != nil {
			return err
		}
	}
	_, err = git(dir, "add", "-A")
	return err
}

// setVersions sets the requirements of m on published modules to the version.
func setVersions(m *mod, published []*mod, version string) error {
	for _, r := range slices.Clone(m.file.Require) {
		if find(published, r.Mod.Path) != nil {
			if err := m.file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeModule(root string, m *mod) error {
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, m.dir, "go.mod"), text, 0o644)
}

// writeSums writes the lines, which are those of published modules, to go.sum in dir, in the
// order of the go command, instead of the lines there of any of these modules.
func writeSums(dir string, published []*mod, lines []string) error {
	name := filepath.Join(dir, "go.sum")
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(line, " ")
		if find(published, path) == nil {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(lines) == 0 {
		return os.RemoveAll(name)
	}
	of := map[module.Version]string{}
	var order []module.Version
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("%s has the line %q, must have three fields", name, line)
		}
		v := module.Version{Path: fields[0], Version: fields[1]}
		of[v] = line
		order = append(order, v)
	}
	module.Sort(order)
	var out bytes.Buffer
	for _, v := range order {
		out.WriteString(of[v] + "\n")
	}
	return os.WriteFile(name, out.Bytes(), 0o644)
}

// sumLines returns the lines for m in the go.sum of another module. It stages the files of the
// repository in dir, and hashes what is staged.
func sumLines(dir string, m *mod, version string) ([]string, error) {
	if _, err := git(dir, "add", "-A"); err != nil {
		return nil, err
	}
	tree, err := git(dir, "write-tree")
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	file := filepath.Join(temp, "module.zip")
	if err := zipModule(file, dir, tree, m, version); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, m.dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s", m.path, version, whole),
		fmt.Sprintf("%s %s/go.mod %s", m.path, version, mod),
	}, nil
}

// zipModule writes the zip of m at a revision of the repository in dir, as the go command makes
// it.
func zipModule(file, dir, revision string, m *mod, version string) error {
	subdir := m.dir
	if subdir == "." {
		subdir = ""
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(out, module.Version{Path: m.path, Version: version}, dir, revision, subdir); err != nil {
		_ = out.Close()
		return fmt.Errorf("module %s: %w", m.path, err)
	}
	return out.Close()
}
