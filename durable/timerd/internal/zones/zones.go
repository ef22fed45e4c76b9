// Package zones embeds the time zone database into the program that imports it, and reports which
// database the program uses: package time prefers a database of the system to the embedded one.
package zones

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a database
)

// Database is a time zone database.
type Database struct {
	Path    string // directory or zip file; empty: embedded in the program
	Version string // such as 2025b, or Go's version if embedded; empty: unknown
}

// String formats the database for logs, such as "2025b from /usr/share/zoneinfo/".
func (d Database) String() string {
	switch {
	case d.Path == "":
		return "embedded from " + d.Version
	case d.Version == "":
		return "unknown version from " + d.Path
	}
	return d.Version + " from " + d.Path
}

// Find returns the database that [time.LoadLocation] prefers: that of the environment variable
// ZONEINFO, then that of a directory of the system, then the embedded one. LoadLocation looks for a
// missing zone in the following databases, so this is the database of most zones.
func Find() Database {
	sources := []string{os.Getenv("ZONEINFO")}
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1", "android", "ios": // package time reads other directories or none
	default:
		sources = append(sources, "/usr/share/zoneinfo/", "/usr/share/lib/zoneinfo/", "/usr/lib/locale/TZ/", "/etc/zoneinfo")
	}
	return find(sources)
}

// probe is a zone that every database has.
const probe = "Europe/Berlin"

func find(sources []string) Database {
	for _, path := range sources {
		if path == "" {
			continue
		}
		if version, ok := read(path); ok {
			return Database{Path: path, Version: version}
		}
	}
	return Database{Version: runtime.Version()}
}

// read returns the version of the database at a path, and whether it exists.
func read(path string) (version string, ok bool) {
	files := os.DirFS(path)
	if strings.HasSuffix(path, ".zip") {
		archive, err := zip.OpenReader(path)
		if err != nil {
			return "", false
		}
		defer archive.Close()
		for _, f := range archive.File {
			if f.Name == probe && f.Method != zip.Store { // package time cannot read it compressed
				return "", false
			}
		}
		files = archive
	}
	zone, err := fs.ReadFile(files, probe)
	if err != nil {
		return "", false
	}
	if _, err := time.LoadLocationFromTZData(probe, zone); err != nil {
		return "", false
	}
	return versionOf(files), true
}

var version = regexp.MustCompile(`^[0-9A-Za-z.-]{1,32}$`)

// versionOf returns the version in a database, or "" if there is none. Distributions have one of
// these files.
func versionOf(files fs.FS) string {
	for _, file := range []struct{ name, prefix string }{{"tzdata.zi", "# version "}, {"+VERSION", ""}} {
		text, err := fs.ReadFile(files, file.name)
		if err != nil {
			continue
		}
		line, _, _ := bytes.Cut(text, []byte("\n"))
		if v, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r"), file.prefix); ok && version.MatchString(v) {
			return v
		}
	}
	return ""
}
