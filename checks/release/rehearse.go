package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goversion "go/version"
)

// rehearse makes a module proxy in dir/proxy of the published modules as a release of root's
// working tree would have them, uncommitted changes included. It unpacks each of them in a folder
// of its own and checks it there. dir/env then has the environment of an outsider who uses them,
// for a shell.
func rehearse(ctx context.Context, root, dir, date string, toolchains []string, w io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tree := filepath.Join(dir, "tree")
	if err := snapshot(root, tree); err != nil {
		return err
	}
	version, unreleased, err := nextVersion(tree)
	if err != nil {
		return err
	}
	if unreleased {
		if err := dateChangelog(tree, version, date); err != nil {
			return err
		}
	}
	if err := prepare(tree, version); err != nil {
		return err
	}
	if _, err := git(tree, "commit", "-q", "-m", "release "+version); err != nil {
		return err
	}
	o, err := newOutsider(ctx, dir)
	if err != nil {
		return err
	}
	return o.check(ctx, tree, version, toolchains, w)
}

// outsider uses the modules of a proxy in a folder, with a module cache that begins empty.
type outsider struct {
	dir string // has proxy, modules for the unpacked ones, and cache
	env []string
}

// newOutsider returns an outsider whose other modules come from this machine's module cache or
// from its proxy.
func newOutsider(ctx context.Context, dir string) (*outsider, error) {
	values := map[string]string{}
	for _, name := range []string{"GOMODCACHE", "GOPROXY"} {
		cmd := exec.CommandContext(ctx, "go", "env", name)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go env %s: %w", name, err)
		}
		values[name] = strings.TrimSpace(string(out))
	}
	machine := filepath.Join(values["GOMODCACHE"], "cache", "download")
	return &outsider{dir: dir, env: []string{
		"GOWORK=off",
		"GOMODCACHE=" + filepath.Join(dir, "cache"),
		"GOPROXY=" + fileURL(filepath.Join(dir, "proxy")) + "," + fileURL(machine) + "," + values["GOPROXY"],
		"GOPRIVATE=",
		"GONOPROXY=",
		// -trimpath lets the build cache serve every module cache.
		"GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath -modcacherw"),
	}}, nil
}

// check packs the modules at HEAD of the repository in tree, and checks that others can use
// them.
func (o *outsider) check(ctx context.Context, tree, version string, toolchains []string, w io.Writer) error {
	mods, err := readModules(tree)
	if err != nil {
		return err
	}
	if err := verify(mods, version); err != nil {
		return err
	}
	proxy := filepath.Join(o.dir, "proxy")
	if err := pack(tree, "HEAD", mods, version, proxy); err != nil {
		return err
	}
	published := onlyPublished(mods)
	var own []string
	for _, m := range published {
		own = append(own, m.path)
	}
	// The checksum database does not know the version yet.
	env := append(slices.Clone(o.env), "GONOSUMDB="+strings.Join(own, ","))
	var shell strings.Builder
	for _, v := range append(slices.Clone(env), "VERSION="+version) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&shell, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	if err := os.WriteFile(filepath.Join(o.dir, "env"), []byte(shell.String()), 0o644); err != nil {
		return err
	}

	dirs, err := unpack(proxy, mods, version, filepath.Join(o.dir, "modules"))
	if err != nil {
		return err
	}
	for i, m := range published {
		toolchain, err := choose(m.file.Go.Version, toolchains)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		begun := time.Now()
		if err := o.checkModule(ctx, dirs[i], toolchain, env); err != nil {
			return fmt.Errorf("%s@%s, from its zip: %w", m.path, version, err)
		}
		fmt.Fprintf(w, "%s@%s, from its zip: tidy, builds, vets with %s (%d s)\n", m.path, version, toolchain, int(time.Since(begun).Seconds()))
	}
	return nil
}

// choose returns the first of the toolchains that runs modules with the go line, and local
// without any.
func choose(goLine string, toolchains []string) (string, error) {
	if len(toolchains) == 0 {
		return "local", nil
	}
	for _, t := range toolchains {
		if goversion.Compare(t, "go"+goLine) >= 0 {
			return t, nil
		}
	}
	return "", fmt.Errorf("go is %s in go.mod, must be at most that of %s", goLine, strings.Join(toolchains, " or "))
}

// checkModule checks one unpacked module: go.mod and go.sum must be complete, and all packages
// and tests must compile.
func (o *outsider) checkModule(ctx context.Context, dir, toolchain string, env []string) error {
	program, err := goProgram(ctx, dir, toolchain)
	if err != nil {
		return err
	}
	env = append(append(os.Environ(), env...), "GOTOOLCHAIN=local")
	for _, args := range [][]string{
		{"build", "-mod=readonly", "./..."},
		{"vet", "-mod=readonly", "./..."},
		{"mod", "tidy", "-diff"},
	} {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		cmd.Env = env
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out.Bytes()))
		}
	}
	return nil
}

// goProgram returns the go command of a toolchain, which the module cache of this machine has
// afterwards.
func goProgram(ctx context.Context, dir, toolchain string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN="+toolchain)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("toolchain %s: %w", toolchain, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin", "go"), nil
}
