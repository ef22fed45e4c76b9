package readme

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
	"github.com/stretchr/testify/require"
)

// README
// newPage returns a server, for loopback, with a live page at / and Prometheus metrics at
// /metrics.
func newPage(fetches *purgatory.Purgatory[string], idle *keyed.Table[uint64, net.Conn]) (*http.Server, error) {
	r := observe.New()
	if _, err := r.Add("fetches", observe.Purgatory(fetches, nil)); err != nil {
		return nil, err
	}
	if _, err := r.Add("idle connections", observe.Wheel(idle)); err != nil {
		return nil, err
	}
	return observe.NewServer(r), nil
}

// end

func TestPage(t *testing.T) {
	fetches, err := purgatory.New[string](purgatory.Options{})
	require.NoError(t, err)
	defer fetches.Close()
	idle, err := keyed.New(func(uint64, net.Conn) {}, timingwheel.Options{})
	require.NoError(t, err)
	require.NoError(t, idle.Set(1, nil, 1<<40))
	server, err := newPage(fetches, idle)
	require.NoError(t, err)
	for path, want := range map[string]string{
		"/":        "<!doctype html>",
		"/metrics": `limbo_wheel_timers{name="idle connections"} 1`,
	} {
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), want)
	}
	_, err = idle.Close(timingwheel.Discard)
	require.NoError(t, err)
}
