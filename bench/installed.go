package main

import (
	"fmt"
	"os"
	"os/exec"
)

// notInstalled is the error of a rival that needs a program or a file that this machine does not
// have.
type notInstalled struct{ name, pkg string }

func (e *notInstalled) Error() string {
	return fmt.Sprintf("%s is not installed: Debian's package %s has it", e.name, e.pkg)
}

// program returns the path of the first of the named programs that is installed.
func program(pkg string, names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &notInstalled{names[0], pkg}
}

// file returns the path of a required file.
func file(pkg, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", &notInstalled{path, pkg}
	}
	return path, nil
}
