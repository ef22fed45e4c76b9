package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Machine describes the machine, the commit and the command of a run.
type Machine struct {
	CPU      string
	Cores    int // used by Go
	MemoryGB float64
	Kernel   string
	Go       string
	Java     string // empty if there is none
	Commit   string
	Command  string
	Begun    time.Time
	Took     time.Duration
	// The load averages of the last minute, before the run and at its end. The first is near 0
	// on a machine without other work.
	LoadBefore, LoadAfter string
}

func thisMachine(root string, args []string) Machine {
	m := Machine{
		CPU:      cmp.Or(procValue("/proc/cpuinfo", "model name"), runtime.GOARCH),
		Cores:    runtime.GOMAXPROCS(0),
		MemoryGB: float64(memInfo("MemTotal")) / (1 << 30),
		Kernel:   strings.TrimSpace(runtime.GOOS + " " + readFile("/proc/sys/kernel/osrelease")),
		Go:       runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Commit:   commit(root),
		Command:  commandLine(args),
		Begun:    time.Now(),

		LoadBefore: load(),
	}
	if java, err := exec.LookPath("java"); err == nil {
		if out, err := exec.Command(java, "-version").CombinedOutput(); err == nil {
			m.Java = firstLine(out)
		}
	}
	return m
}

// commandLine is the command that reproduces the results elsewhere, without the flags that say
// where this run has put its files.
func commandLine(args []string) string {
	words := []string{"go run ./bench"}
	for i := 0; i < len(args); i++ {
		name, _, valued := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if name != "out" || !strings.HasPrefix(args[i], "-") {
			words = append(words, args[i])
		} else if !valued {
			i++ // the next argument is the directory
		}
	}
	return strings.Join(words, " ")
}

func readFile(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// procValue returns the value of the first "name: value" in a file, or "".
func procValue(file, name string) string {
	for line := range strings.Lines(readFile(file)) {
		if have, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(have) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func load() string {
	before, _, _ := strings.Cut(readFile("/proc/loadavg"), " ")
	return before
}

// commit returns the commit of the working tree, and whether the tree differs from it.
func commit(root string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	id, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "none (not committed)"
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no"); err == nil && changed != "" {
		id += " and uncommitted changes"
	}
	return id
}

// repository returns the root of limbo's repository, which is the working directory or an
// ancestor.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if b, err := os.ReadFile(filepath.Join(at, "go.mod")); err == nil &&
			bytes.HasPrefix(b, []byte("module github.com/seed-782fa212/limbo\n")) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in limbo's repository", dir)
		}
	}
}
