package observe

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page of a site whose name resolves to loopback can read nothing.
func TestServerRefusesNamesOnLoopback(t *testing.T) {
	leavesNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := NewServer(New())
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	for _, path := range []string{"/", "/metrics", "/snapshot.json"} {
		for host, code := range map[string]int{
			"rebound.example": 403, "rebound.example:" + port: 403, "localhost.example": 403, "127.0.0.1.example": 403, "[": 403,
			"localhost": 200, "LOCALHOST:" + port: 200, "127.0.0.1": 200, "127.0.0.1:" + port: 200, "[::1]": 200, "[::1]:80": 200, "192.0.2.1": 200,
		} {
			request, err := http.NewRequestWithContext(background, http.MethodGet, "http://"+l.Addr().String()+path, nil)
			require.NoError(t, err)
			request.Host = host
			answer, err := client.Do(request)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, code, answer.StatusCode, host)
			if code == http.StatusForbidden && host != "[" {
				require.Contains(t, string(text), "must be localhost or an IP address on loopback")
				require.Contains(t, string(text), host)
			}
		}
	}
	client.CloseIdleConnections()
	require.NoError(t, server.Shutdown(background))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

// On other addresses the Host may be any: it is the proxy's, or the machine's.
func TestServerTakesNamesElsewhere(t *testing.T) {
	for _, at := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, &net.UnixAddr{Name: "/run/page", Net: "unix"}, nil} {
		request := httptest.NewRequest(http.MethodGet, "/", nil) // of example.com
		if at != nil {
			request = request.WithContext(context.WithValue(background, http.LocalAddrContextKey, at))
		}
		w := httptest.NewRecorder()
		NewServer(New()).Handler.ServeHTTP(w, request)
		require.Equal(t, http.StatusOK, w.Code)
	}
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request = request.WithContext(context.WithValue(background, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv6loopback, Port: 80}))
	w := httptest.NewRecorder()
	NewServer(New()).Handler.ServeHTTP(w, request)
	require.Equal(t, http.StatusForbidden, w.Code)
}
