package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// release makes a release of the repository in root: a commit with the tags of the published
// modules, and after it one that restores the tree for development. It makes both in a clone,
// so that root has either all of it or nothing; if dry, nothing.
func release(root, version, date string, dry bool, w io.Writer) error {
	branch, err := checkReady(root, version)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	dir := filepath.Join(temp, "clone")
	if err := clone(root, dir); err != nil {
		return err
	}
	mods, err := readModules(dir)
	if err != nil {
		return err
	}
	var tags []string
	for _, m := range onlyPublished(mods) {
		tags = append(tags, m.tag(version))
	}
	if err := checkTags(root, version, tags); err != nil {
		return err
	}
	if err := dateChangelog(dir, version, date); err != nil {
		return err
	}
	before, err := git(dir, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if err := prepare(dir, version); err != nil {
		return err
	}
	if _, err := git(dir, "commit", "-q", "-m", "release: "+version); err != nil {
		return err
	}
	for i, m := range onlyPublished(mods) {
		if _, err := git(dir, "tag", "-a", "-m", m.path+" "+version, tags[i]); err != nil {
			return err
		}
	}
	if err := develop(dir, before, version); err != nil {
		return err
	}
	if _, err := git(dir, "commit", "-q", "-m", "release: develop after "+version); err != nil {
		return err
	}
	stat, err := git(dir, "show", "--stat=80", "--format=%h %s", "HEAD^")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\ntags: %s\n", stat, strings.Join(tags, " "))
	if dry {
		return nil
	}

	fetch := []string{"fetch", "-q", "--no-tags", dir, "refs/heads/" + branch}
	for _, tag := range tags {
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	if err := gitAll(root, fetch, []string{"merge", "-q", "--ff-only", "FETCH_HEAD"}); err != nil {
		return err
	}
	remote, err := git(root, "config", "--default", "origin", "--get", "branch."+branch+".remote")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTo publish it, push the branch and its tags together:\n\n\tgit push --atomic %s %s %s\n", remote, branch, strings.Join(tags, " "))
	return nil
}

// checkReady returns the branch of the repository in root, or an error if a release cannot begin
// there.
func checkReady(root, version string) (branch string, err error) {
	if err := checkVersion(version); err != nil {
		return "", err
	}
	changed, err := git(root, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		return "", fmt.Errorf("the working tree is not clean, must have no changes and no new files:\n%s", changed)
	}
	if branch, err = git(root, "symbolic-ref", "--short", "HEAD"); err != nil {
		return "", fmt.Errorf("HEAD must be a branch: %w", err)
	}
	return branch, nil
}

// checkTags returns an error unless the version is higher than those released before, and none
// of its tags exists.
func checkTags(root, version string, tags []string) error {
	exist, err := git(root, append([]string{"tag", "--list"}, tags...)...)
	if err != nil {
		return err
	}
	if exist != "" {
		return fmt.Errorf("tag %s exists already", strings.ReplaceAll(exist, "\n", ", "))
	}
	before, err := git(root, "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return err
	}
	for _, tag := range strings.Fields(before) {
		if semver.Compare(version, tag) <= 0 {
			return fmt.Errorf("version is %s, must be higher than %s, which is in this branch", version, tag)
		}
	}
	return nil
}
