// Package webpage is the common part of the pages of observe and durable/console: it serves
// their files and their streams of events, and contains their shared scripts and style.
//
// A page is a folder with an index.html, scripts (ES modules) and styles. It finds the shared
// files below shared/: base.css, dom.js, format.js, chart.js and stream.js. All addresses are
// relative, so a page works at any path.
package webpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"time"
)

//go:embed page
var shared embed.FS

// policy allows the page's own files, and data from the page's own origin. The browser loads and
// runs nothing else, regardless of the content of keys.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// SetHeader sets the headers of every response of a page: the policy above, and no storage.
func SetHeader(head http.Header) {
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Security-Policy", policy)
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
}

// Redirect answers a request for a mounted page without the trailing slash on which its relative
// links depend. For other requests it does nothing and reports false. The redirect is relative,
// too, for proxies that serve the page at another path.
func Redirect(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "" {
		return false
	}
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		u = &url.URL{}
	}
	w.Header().Set("Location", "./"+path.Base(u.EscapedPath())+"/")
	w.WriteHeader(http.StatusMovedPermanently)
	return true
}

// Handle adds the files of a page to mux: index.html at /, the others by their names, and the
// shared ones below /shared/. It panics if a file cannot be read. Browsers cache the files, and
// ask each time whether they have changed.
func Handle(mux *http.ServeMux, own fs.FS) {
	handleFolder(mux, "GET /", own)
	folder, err := fs.Sub(shared, "page")
	if err != nil {
		panic("webpage: " + err.Error())
	}
	handleFolder(mux, "GET /shared/", folder)
}

func handleFolder(mux *http.ServeMux, prefix string, folder fs.FS) {
	kinds := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		panic("webpage: " + err.Error())
	}
	for _, entry := range entries {
		name := entry.Name()
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			panic("webpage: " + err.Error())
		}
		kind := mime.FormatMediaType(kinds[path.Ext(name)], map[string]string{"charset": "utf-8"})
		sum := sha256.Sum256(text)
		tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
		if name == "index.html" {
			name = "{$}"
		}
		mux.HandleFunc(prefix+name, func(w http.ResponseWriter, r *http.Request) {
			head := w.Header()
			head.Set("Cache-Control", "no-cache")
			head.Set("Content-Type", kind)
			head.Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
		})
	}
}
