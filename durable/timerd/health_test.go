package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// serveTimerd runs timerd in this process until the test ends, and returns its address.
func serveTimerd(t *testing.T, env func(string) string, args ...string) (addr string) {
	addr, err := programs.Addr()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var stderr strings.Builder
	status := make(chan int, 1)
	args = append([]string{"-listen", addr, "-store", "pebble:" + filepath.Join(t.TempDir(), "timers"), "-allow", "127.0.0.0/8"}, args...)
	go func() { status <- run(ctx, args, env, &stderr, &stderr) }()
	t.Cleanup(func() {
		stop()
		require.Zero(t, <-status, stderr.String())
	})
	require.NoError(t, programs.Await(nil, programs.Accepts(addr)))
	return addr
}

// healthOf returns the status and the message of timerd -health.
func healthOf(t *testing.T, args ...string) (status int, output string) {
	var stderr bytes.Buffer
	status = run(t.Context(), append([]string{"-health"}, args...), noEnv, nil, &stderr)
	return status, stderr.String()
}

// pemFiles writes a certificate that is its own CA, and its key.
func pemFiles(t *testing.T) (cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"timerd.example.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return writeTemp(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		writeTemp(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

func TestHealth(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // is not used
	token := func(name string) string { return map[string]string{"TIMERD_TOKEN": "0123456789abcdef"}[name] }
	addr := serveTimerd(t, token)
	status, output := healthOf(t, "-listen", addr)
	require.Zero(t, status, output)
	require.Empty(t, output)

	cert, key := pemFiles(t)
	addr = serveTimerd(t, token, "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", cert)
	status, output = healthOf(t, "-listen", addr, "-tls-cert", cert, "-tls-key", key)
	require.Zero(t, status, output)
	status, output = healthOf(t, "-listen", addr) // speaks HTTP to a TLS server
	require.Equal(t, 1, status)
	require.Contains(t, output, "timerd: not healthy: ")

	free, err := programs.Addr()
	require.NoError(t, err)
	status, output = healthOf(t, "-listen", free)
	require.Equal(t, 1, status)
	require.Contains(t, output, "connection refused")

	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.URL.Path+" fails", http.StatusServiceUnavailable)
	}))
	defer failing.Close()
	status, output = healthOf(t, "-listen", failing.Listener.Addr().String())
	require.Equal(t, 1, status)
	require.Contains(t, output, "is answered with 503 Service Unavailable: /healthz fails")

	for want, args := range map[string][]string{
		`-listen is "80", must be host:port`:              {"-listen", "80"},
		`-tls-cert is "x" and -tls-key is "", must be bo`: {"-tls-cert", "x"},
	} {
		status, output = healthOf(t, args...)
		require.Equal(t, 2, status)
		require.Contains(t, output, want)
	}
}

func TestReachable(t *testing.T) {
	for host, want := range map[string]string{
		"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1", "10.0.0.1": "10.0.0.1", "::1": "::1", "timerd.internal": "timerd.internal",
	} {
		require.Equal(t, want, reachable(host), host)
	}
}

// The command line has precedence over the environment, and no variable changes a command.
func TestFlagsFromTheEnvironment(t *testing.T) {
	env := map[string]string{
		"TIMERD_WORKERS": "7", "TIMERD_MAX_DEAD_AGE": "1h", "TIMERD_LOG": "json", "TIMERD_STORE": "pebble:elsewhere",
		"TIMERD_VERSION": "true", "TIMERD_TOKEN_FILE": writeTemp(t, "0123456789abcdef"),
	}
	getenv := func(name string) string { return env[name] }
	f, err := parse([]string{"-workers", "3"}, getenv, nil)
	require.NoError(t, err)
	require.Equal(t, 3, f.config.Workers)
	require.Equal(t, time.Hour, f.config.Limits.MaxDeadAge)
	require.Equal(t, "pebble:elsewhere", f.config.Store)
	require.Equal(t, "0123456789abcdef", f.config.Token)
	require.True(t, f.logJSON)
	require.False(t, f.version)

	env["TIMERD_WORKERS"] = "many"
	_, err = parse(nil, getenv, nil)
	require.ErrorContains(t, err, `TIMERD_WORKERS is "many", must be a value of -workers: parse error`)
}

func TestBuildLine(t *testing.T) {
	built := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "1a2b3c"}, {Key: "vcs.time", Value: "2030-01-02T03:04:05Z"}}}
	built.Main.Version = "v0.1.0"
	require.Regexp(t, `^v0\.1\.0, commit 1a2b3c of 2030-01-02T03:04:05Z, go1\.\S+ [a-z0-9]+/[a-z0-9]+$`, buildLine(built))
	built.Settings = append(built.Settings, debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	require.Contains(t, buildLine(built), "05Z with changes, go1")
	for _, info := range []*debug.BuildInfo{nil, {}} {
		require.Contains(t, buildLine(info), "(unknown), commit (unknown), go1")
	}
	version, commit = "v0.2.0", "4d5e6f"
	defer func() { version, commit = "", "" }()
	require.Contains(t, buildLine(built), "v0.2.0, commit 4d5e6f, go1")
	require.Contains(t, buildLine(nil), "v0.2.0, commit 4d5e6f, go1")
}
