package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/zones"
)

// version and commit are set by -ldflags="-X main.version=… -X main.commit=…", for builds outside of
// a repository. Otherwise Go records them.
var version, commit string

// versionLine returns the answer to -version.
func versionLine() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("timerd %s, time zones %s", buildLine(info), zones.Find())
}

// buildLine describes the build of the program, such as
// "v0.1.0, commit 1a2b3c of 2030-01-02T03:04:05Z, go1.26.8 linux/amd64". info may be nil.
func buildLine(info *debug.BuildInfo) string {
	v, c := version, commit
	if info != nil {
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if v == "" {
			v = info.Main.Version
		}
		if c == "" {
			c = settings["vcs.revision"]
			if c != "" && settings["vcs.time"] != "" {
				c += " of " + settings["vcs.time"]
			}
			if settings["vcs.modified"] == "true" {
				c += " with changes"
			}
		}
	}
	if v == "" {
		v = "(unknown)"
	}
	if c == "" {
		c = "(unknown)"
	}
	return fmt.Sprintf("%s, commit %s, %s %s/%s", v, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
