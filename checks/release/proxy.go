package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// pack writes the published modules at a commit of the repository in dir, as the version, to a
// module proxy in a folder.
func pack(dir, commit string, mods []*mod, version, folder string) error {
	text, err := git(dir, "show", "-s", "--format=%cI", commit)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": at.UTC()})
	if err != nil {
		return err
	}
	for _, m := range onlyPublished(mods) {
		file, err := proxyFile(folder, m, version)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := zipModule(file+".zip", dir, commit, m, version); err != nil {
			return err
		}
		text, err := git(dir, "show", commit+":"+m.name("go.mod"))
		if err != nil {
			return err
		}
		for name, content := range map[string]string{
			file + ".info": string(info),
			file + ".mod":  text + "\n",
			filepath.Join(filepath.Dir(file), "list"): version + "\n",
		} {
			if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// unpack writes the files of the published modules in a proxy to one folder each, and returns
// these in the order of mods.
func unpack(folder string, mods []*mod, version, to string) (dirs []string, err error) {
	for _, m := range onlyPublished(mods) {
		file, err := proxyFile(folder, m, version)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(to, m.dir+"@"+version)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := zip.Unzip(dir, module.Version{Path: m.path, Version: version}, file+".zip"); err != nil {
			return nil, fmt.Errorf("module %s: %w", m.path, err)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// proxyFile returns where a module proxy in a folder has the version of m, without the extension.
func proxyFile(folder string, m *mod, version string) (string, error) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return "", err
	}
	v, err := module.EscapeVersion(version)
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, filepath.FromSlash(escaped), "@v", v), nil
}

// fileURL returns the URL of a folder, for GOPROXY.
func fileURL(folder string) string {
	path := filepath.ToSlash(folder)
	if path[0] != '/' {
		path = "/" + path // of a Windows drive
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
