package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/licences.md is what the command prints, so every licence in it is permissive.
func TestPage(t *testing.T) {
	root := filepath.Join("..", "..")
	modules, err := linked(root)
	require.NoError(t, err)
	page, err := render(modules)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "licences.md"))
	require.NoError(t, err)
	require.Equal(t, page, string(text), "docs/licences.md is not up to date: run go run ./checks/licences >docs/licences.md")
}

const isc = `Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY
AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM
LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR
OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
PERFORMANCE OF THIS SOFTWARE.
`

const mpl = `This Source Code Form is subject to the terms of the Mozilla Public
License, v. 2.0. If a copy of the MPL was not distributed with this
file, You can obtain one at http://mozilla.org/MPL/2.0/.
`

func TestLicences(t *testing.T) {
	mit, err := os.ReadFile(filepath.Join("..", "..", "LICENSE"))
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		files map[string]string
		ids   []string
		err   string
	}{
		{"one", map[string]string{"LICENSE": string(mit)}, []string{"MIT"}, ""},
		{"a package's own", map[string]string{"LICENSE": string(mit), "a/COPYING.txt": isc}, []string{"ISC", "MIT"}, ""},
		{"of a package that is not linked", map[string]string{"Licence.md": string(mit), "other/LICENSE": mpl}, []string{"MIT"}, ""},
		{"copyleft", map[string]string{"LICENSE": mpl}, nil, "licence is MPL-2.0, must be one of"},
		{"copyleft in a package", map[string]string{"LICENSE": string(mit), "a/LICENSE": mpl}, nil, "licence is MPL-2.0, must be one of"},
		{"unknown", map[string]string{"LICENSE": "Ask the author before you use this."}, nil, "known licences are 0 % of the text, must be 75 %"},
		{"code of that name", map[string]string{"license.go": "package a"}, nil, "module m has no licence file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				name = filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
			}
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
			m := &thirdParty{path: "m", packages: map[string]map[string]bool{dir: {filepath.Join(dir, "a", "b"): true}}}
			ids, err := m.licences()
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.ids, ids)
		})
	}
}
