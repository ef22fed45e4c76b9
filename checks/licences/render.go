package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// leastCovered is the part of a licence file, in percent, that must be the text of known
// licences. It is what pkg.go.dev requires.
const leastCovered = 75

// permissive holds the SPDX identifiers of licences that only require notices, or nothing.
var permissive = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unlicense", "Zlib"}

const head = `# Licences of linked modules

limbo is under the [MIT licence](../LICENSE), and the core links only the standard library.
These are the third-party modules that programs link because they import another of limbo's
published modules, on Linux, macOS or Windows. Each licence is permissive. The identifiers are
SPDX's; a module has several if its parts have different ones. durable itself links only the
standard library: testify is for the conformance suite of engines, durable/storetest.

The table is printed by ` + "`go run ./checks/licences`" + ` from the modules' licence files; a test compares.

| module | licences | linked by |
|---|---|---|
`

// render returns the page of the modules.
func render(modules []*thirdParty) (string, error) {
	var page strings.Builder
	page.WriteString(head)
	var errs []error
	for _, m := range modules {
		ids, err := m.licences()
		if err != nil {
			errs = append(errs, err)
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", m.path, strings.Join(ids, ", "), strings.Join(slices.Sorted(maps.Keys(m.by)), ", "))
	}
	return page.String(), errors.Join(errs...)
}

// licenceFile matches the names of licence files.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)

// licences returns the identifiers of the licences that apply to the packages of m: those in the
// module's directory, in the packages' and in those between.
func (m *thirdParty) licences() ([]string, error) {
	dirs := map[string]bool{}
	for root, packages := range m.packages {
		dirs[root] = true
		for dir := range packages {
			if inside, err := filepath.Rel(root, dir); err != nil || !filepath.IsLocal(inside) {
				return nil, fmt.Errorf("module %s: package %s is not in its directory %s", m.path, dir, root)
			}
			for ; !dirs[dir]; dir = filepath.Dir(dir) {
				dirs[dir] = true
			}
		}
	}
	ids := map[string]bool{}
	for dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			if err := classify(text, ids); err != nil {
				return nil, fmt.Errorf("module %s: %s: %w", m.path, filepath.Join(dir, e.Name()), err)
			}
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("module %s has no licence file", m.path)
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// classify adds the identifiers of the licences in a text to ids.
func classify(text []byte, ids map[string]bool) error {
	covered := licensecheck.Scan(text)
	if covered.Percent < leastCovered {
		return fmt.Errorf("known licences are %.0f %% of the text, must be %d %%", covered.Percent, leastCovered)
	}
	for _, match := range covered.Match {
		if match.IsURL {
			continue
		}
		if !slices.Contains(permissive, match.ID) {
			return fmt.Errorf("licence is %s, must be one of %s", match.ID, strings.Join(permissive, ", "))
		}
		ids[match.ID] = true
	}
	return nil
}
