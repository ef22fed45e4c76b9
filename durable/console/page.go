package console

import (
	"embed"
	"mime"
	"net/http"
	"path"
)

//go:embed page
var pages embed.FS

// file is one of the page's files. They have no secrets, so they need no session.
type file struct {
	text []byte
	kind string // of its content
}

// files are the page's files, by the patterns of their paths.
var files = readFiles()

func readFiles() map[string]file {
	kinds := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
	all := map[string]file{}
	entries, err := pages.ReadDir("page")
	if err != nil {
		panic("console: " + err.Error())
	}
	for _, e := range entries {
		text, err := pages.ReadFile("page/" + e.Name())
		if err != nil {
			panic("console: " + err.Error())
		}
		name := e.Name()
		if name == "index.html" {
			name = "{$}"
		}
		all[name] = file{text, mime.FormatMediaType(kinds[path.Ext(e.Name())], map[string]string{"charset": "utf-8"})}
	}
	return all
}

func (f file) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", f.kind)
	_, _ = w.Write(f.text)
}
