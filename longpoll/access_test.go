package longpoll

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
)

// No call keeps the lock, however its poll ends. This test runs first: it fails with a message
// where another test would hang.
func TestNoCallKeepsTheLock(t *testing.T) {
	p, err := New(Options{Client: func(*http.Request) string { return "one" }, MaxPerClient: 1, OnError: func(*http.Request, error) {}})
	require.NoError(t, err)
	free := func(when string) {
		t.Helper()
		require.True(t, p.mu.TryLock(), "the lock is kept %s", when)
		p.mu.Unlock()
	}
	serve := func(query string, await func() error) bool {
		return p.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?"+query, nil), func(context.Context, time.Duration) error { return await() })
	}
	for _, end := range []error{nil, purgatory.ErrExpired, purgatory.ErrFull, purgatory.ErrClosed, purgatory.ErrCancelled, io.EOF} {
		require.Equal(t, end == nil, serve("wait=1", func() error {
			free("while a poll waits")
			require.False(t, serve("wait=1", func() error { return nil }), "a second poll of one client")
			free("after a poll that was refused")
			return end
		}))
		free("after a poll that waited")
	}
	require.False(t, serve("wait=never", func() error { return nil }))
	free("after a poll that cannot be read")
	p.Stats()
	free("after Stats")
}
