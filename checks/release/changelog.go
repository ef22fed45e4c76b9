package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// newest matches the first heading of a version in the changelog.
var newest = regexp.MustCompile(`(?m)^## (\S+) - (\S+)$`)

// readChangelog returns the changelog in root, and where the newest version and its date are.
func readChangelog(root string) (text string, version, date span, err error) {
	raw, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", span{}, span{}, err
	}
	at := newest.FindSubmatchIndex(raw)
	if at == nil {
		return "", span{}, span{}, fmt.Errorf(`CHANGELOG.md has no heading "## VERSION - DATE"`)
	}
	return string(raw), span{at[2], at[3]}, span{at[4], at[5]}, nil
}

// span is a part of a text.
type span struct{ from, to int }

func (s span) of(text string) string { return text[s.from:s.to] }

// dateChangelog writes the date into the changelog in root. The version must be the newest one
// there, and unreleased.
func dateChangelog(root, version, date string) error {
	text, v, d, err := readChangelog(root)
	if err != nil {
		return err
	}
	if v.of(text) != strings.TrimPrefix(version, "v") || d.of(text) != "unreleased" {
		return fmt.Errorf(`CHANGELOG.md begins with "## %s - %s", must be "## %s - unreleased"`, v.of(text), d.of(text), strings.TrimPrefix(version, "v"))
	}
	return os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(text[:d.from]+date+text[d.to:]), 0o644)
}

// nextVersion returns the version to rehearse: the unreleased one of the changelog in root, or the
// patch after the newest.
func nextVersion(root string) (version string, unreleased bool, err error) {
	text, v, d, err := readChangelog(root)
	if err != nil {
		return "", false, err
	}
	version = "v" + v.of(text)
	if err := checkVersion(version); err != nil {
		return "", false, fmt.Errorf("CHANGELOG.md: %w", err)
	}
	if d.of(text) == "unreleased" {
		return version, true, nil
	}
	release, _, _ := strings.Cut(version, "-")
	dot := strings.LastIndexByte(release, '.')
	patch, err := strconv.Atoi(release[dot+1:])
	if err != nil {
		return "", false, fmt.Errorf("CHANGELOG.md: version %s: %w", version, err)
	}
	return release[:dot+1] + strconv.Itoa(patch+1), false, nil
}
