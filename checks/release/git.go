package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// forgetGit makes git find repositories by their directories: the environment names another one
// if this command runs in a hook.
func forgetGit() {
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"} {
		_ = os.Unsetenv(name) // fails only for names that are invalid
	}
}

// git runs git in a directory and returns its output without the final newline.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// gitAll runs git in a directory, once for each list of arguments.
func gitAll(dir string, commands ...[]string) error {
	for _, args := range commands {
		if _, err := git(dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// snapshot makes a repository in dir that holds the files of root in one commit: all that git
// does not ignore, committed or not.
func snapshot(root, dir string) error {
	if err := gitAll(filepath.Dir(dir), []string{"init", "-q", dir}); err != nil {
		return err
	}
	return gitAll(dir,
		[]string{"config", "user.name", "rehearsal"},
		[]string{"config", "user.email", "rehearsal@localhost"},
		[]string{"config", "commit.gpgsign", "false"},
		[]string{"--git-dir", filepath.Join(dir, ".git"), "--work-tree", root, "add", "-A"},
		[]string{"commit", "-q", "-m", "the working tree"},
		[]string{"reset", "-q", "--hard"},
	)
}

// clone clones the repository of root into dir, with the committer that root's has.
func clone(root, dir string) error {
	if err := gitAll(filepath.Dir(dir), []string{"clone", "-q", "--shared", root, dir}); err != nil {
		return err
	}
	for _, key := range []string{"user.name", "user.email"} {
		value, err := git(root, "config", "--default", "", "--get", key)
		if err != nil {
			return err
		}
		if value == "" {
			continue // the environment may have it
		}
		if _, err := git(dir, "config", key, value); err != nil {
			return err
		}
	}
	return nil
}
