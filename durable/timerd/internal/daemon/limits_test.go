package daemon

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

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
