package webpage

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func serve(t *testing.T, own fs.FS) func(path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	Handle(mux, own)
	return func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		SetHeader(w.Header())
		mux.ServeHTTP(w, r)
		return w
	}
}

func TestFiles(t *testing.T) {
	get := serve(t, fstest.MapFS{"index.html": {Data: []byte("<p>")}, "main.js": {Data: []byte("1")}})
	for path, kind := range map[string]string{
		"/": "text/html", "/main.js": "text/javascript", "/shared/base.css": "text/css",
		"/shared/dom.js": "text/javascript", "/shared/format.js": "text/javascript", "/shared/chart.js": "text/javascript", "/shared/stream.js": "text/javascript",
	} {
		w := get(path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, kind+"; charset=utf-8", w.Header().Get("Content-Type"), path)
		require.NotEmpty(t, w.Body.String(), path)
		require.NotRegexp(t, `style=|innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|url\(|https?://[^w]`, w.Body.String(), path)
	}
	for _, path := range []string{"/index.html", "/base.css", "/shared/", "/shared/main.js", "/shared/../main.js"} {
		require.NotEqual(t, http.StatusOK, get(path).Code, path)
	}
}

// A browser asks whether a file has changed, and downloads it only if it has.
func TestFilesAreKept(t *testing.T) {
	get := serve(t, fstest.MapFS{"a.js": {Data: []byte("1")}})
	w := get("/a.js")
	tag := w.Header().Get("ETag")
	require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	again := get("/a.js", "If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Empty(t, again.Body.String())
	changed := serve(t, fstest.MapFS{"a.js": {Data: []byte("2")}})("/a.js", "If-None-Match", tag)
	require.Equal(t, http.StatusOK, changed.Code)
	require.Equal(t, "2", changed.Body.String())
}

func TestHeader(t *testing.T) {
	head := http.Header{}
	SetHeader(head)
	require.Equal(t, "no-store", head.Get("Cache-Control"))
	require.Equal(t, "nosniff", head.Get("X-Content-Type-Options"))
	csp := head.Get("Content-Security-Policy")
	for _, has := range []string{"default-src 'none'", "connect-src 'self'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		require.Contains(t, csp, has)
	}
	require.NotContains(t, csp, "unsafe")
}

func TestRedirect(t *testing.T) {
	for mounted, to := range map[string]string{"/ops/limbo": "./limbo/", "/limbo?x=1": "./limbo/", "/a%2Fb": "./a%2Fb/", "%": "././"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.RequestURI = "", mounted
		w := httptest.NewRecorder()
		require.True(t, Redirect(w, r))
		require.Equal(t, http.StatusMovedPermanently, w.Code)
		require.Equal(t, to, w.Header().Get("Location"))
	}
	w := httptest.NewRecorder()
	require.False(t, Redirect(w, httptest.NewRequest(http.MethodGet, "/x", nil)))
	require.Empty(t, w.Header())
}

type unreadable struct{ fstest.MapFS }

func (u unreadable) ReadFile(string) ([]byte, error) { return nil, errors.New("unreadable") }

func TestFilesThatCannotBeRead(t *testing.T) {
	require.Panics(t, func() { Handle(http.NewServeMux(), fstest.MapFS{"a": {Mode: fs.ModeDir}, "a/b": {}}) }, "a folder")
	require.Panics(t, func() { Handle(http.NewServeMux(), unreadable{fstest.MapFS{"a.js": {}}}) })
}
