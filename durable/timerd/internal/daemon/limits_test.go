package daemon

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request with more than 16 KiB of headers is refused. net/http allows 4 KiB more than it is told.
func TestHeadersAreBounded(t *testing.T) {
	url, stop := start(t, Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: 1})
	for bytes, status := range map[int]int{8 << 10: http.StatusOK, 24 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/timers", nil)
		require.NoError(t, err)
		req.Header.Set("X-Padding", strings.Repeat("a", bytes))
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, status, res.StatusCode, bytes)
	}
	require.NoError(t, stop())
}

// A connection whose request has no complete headers after 5 s is closed.
func TestHeadersMustArrive(t *testing.T) {
	t.Parallel()
	url, stop := start(t, Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: 1})
	begun := time.Now()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET /timers HTTP/1.1\r\nHost: timerd\r\n"))
	require.NoError(t, err)
	reply, _ := io.ReadAll(conn)
	require.Empty(t, reply)
	require.GreaterOrEqual(t, time.Since(begun), headerTimeout)
	require.Less(t, time.Since(begun), readTimeout, "the timeout of a whole request")
	require.NoError(t, stop())
}
