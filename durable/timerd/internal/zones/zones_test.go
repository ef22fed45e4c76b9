package zones

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// berlin is a zone file with no transitions.
var berlin = "TZif2" + strings.Repeat("\x00", 15) +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04" + "\x00\x00\x0e\x10\x00\x00CET\x00" +
	"TZif2" + strings.Repeat("\x00", 15) +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04" + "\x00\x00\x0e\x10\x00\x00CET\x00" + "\nCET-1\n"

func folder(t *testing.T, files map[string]string) string {
	path := t.TempDir()
	for name, text := range files {
		name = filepath.Join(path, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return path
}

func archive(t *testing.T, method uint16, files map[string]string) string {
	path := filepath.Join(t.TempDir(), "zoneinfo.zip")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := zip.NewWriter(f)
	for name, text := range files {
		e, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		require.NoError(t, err)
		_, err = e.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return path
}

func TestVersions(t *testing.T) {
	embedded := Database{Version: runtime.Version()}
	require.Equal(t, "embedded from "+runtime.Version(), embedded.String())
	missing := filepath.Join(t.TempDir(), "none")
	for want, files := range map[string]map[string]string{
		"2031a":     {probe: berlin, "tzdata.zi": "# version 2031a\n# redo posix_only\n"},
		"2031b":     {probe: berlin, "tzdata.zi": "Z Africa/Abidjan", "+VERSION": "2031b\n"},
		"2031c":     {probe: berlin, "+VERSION": "2031c"},
		"2031d-rea": {probe: berlin, "+VERSION": "2031d-rea\r\n"},
		"":          {probe: berlin, "+VERSION": "what is this\n", "tzdata.zi": ""},
	} {
		path := folder(t, files)
		require.Equal(t, Database{Path: path, Version: want}, find([]string{"", missing, path, folder(t, files)}))
		path = archive(t, zip.Store, files)
		require.Equal(t, Database{Path: path, Version: want}, find([]string{path}))
		require.Equal(t, embedded, find([]string{archive(t, zip.Deflate, files)}))
	}
	for _, files := range []map[string]string{
		{"tzdata.zi": "# version 2031a\n"}, {probe: "no zone", "tzdata.zi": "# version 2031a\n"},
	} {
		require.Equal(t, embedded, find([]string{folder(t, files), missing + ".zip"}))
	}
	require.Equal(t, "2031a from /a", Database{"/a", "2031a"}.String())
	require.Equal(t, "unknown version from /a", Database{Path: "/a"}.String())
}

// Find agrees with package time that the database in ZONEINFO comes first.
func TestFind(t *testing.T) {
	path := folder(t, map[string]string{probe: berlin, "+VERSION": "2031a"})
	if os.Getenv("ZONES_OF") != "" {
		require.Equal(t, os.Getenv("ZONES_OF"), Find().String())
		zone, err := time.LoadLocation(probe)
		require.NoError(t, err)
		_, offset := time.Date(2030, 7, 1, 0, 0, 0, 0, zone).Zone()
		require.Equal(t, 3600, offset, "there is no summer time in that database")
		return
	}
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFind$")
	test.Env = append(os.Environ(), "ZONEINFO="+path, "ZONES_OF=2031a from "+path)
	output, err := test.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// The database is embedded in the program.
func TestEmbedded(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, strings.Fields(string(output)), "time/tzdata")
}
