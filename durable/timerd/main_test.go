package main

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/zones"
)

// The test of several processes starts this test binary for them.
func TestMain(m *testing.M) {
	if os.Getenv("LIMBO_TIMERD_TEST") != "" {
		main()
	}
	os.Exit(m.Run())
}

func noEnv(string) string { return "" }

func writeTemp(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestFlags(t *testing.T) {
	env := map[string]string{"TIMERD_TOKEN": "0123456789abcdef", "TIMERD_SECRET": "from the environment"}
	f, err := parse([]string{"-listen", ":80", "-allow", "10.0.0.0/8, ::1", "-trusted-proxies", "fd00::/8,10.0.0.1", "-log", "json", "-log-level", "debug", "-secret-file", writeTemp(t, "fedcba9876543210\n")},
		func(name string) string { return env[name] }, nil)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", f.config.Token)
	require.Equal(t, "fedcba9876543210", string(f.config.Secret))
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, f.config.Allow)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.0.0.1/32")}, f.config.TrustedProxies)
	var out bytes.Buffer
	f.logger(&out).Debug("said")
	require.Contains(t, out.String(), `"msg":"said"`)

	for want, args := range map[string][]string{
		`-listen is "0.0.0.0:80", must be a loopback address such as 127.0.0.1:7717 unless`:    {"-listen", "0.0.0.0:80"},
		`-listen is ":80", must be a loopback address`:                                         {"-listen", ":80"},
		`-listen is "example.com:80", must be a loopback address`:                              {"-listen", "example.com:80"},
		`-listen is "80", must be host:port`:                                                   {"-listen", "80"},
		`the token is 5 bytes long, must be at least 16`:                                       {"-token-file", writeTemp(t, "short")},
		`the token has white space in it`:                                                      {"-token-file", writeTemp(t, "0123456789 abcdef")},
		`is empty, must hold at least 16 bytes`:                                                {"-token-file", writeTemp(t, "\n")},
		`no such file`:                                                                         {"-token-file", "/nonexistent/token"},
		`-store is "mysql:x", must be pebble:DIR`:                                              {"-store", "mysql:x"},
		`-store is "pebble:", must be pebble:DIR`:                                              {"-store", "pebble:"},
		`-workers is "-1", must be 0`:                                                          {"-workers", "-1"},
		`-wait-replicas is "1", must be 0 with a store that has no replicas`:                   {"-wait-replicas", "1"},
		`-allow has "10.0.0.0/33", must be addresses or prefixes`:                              {"-allow", "10.0.0.0/33"},
		`-trusted-proxies has "lb.internal", must be addresses or prefixes such as 10.0.0.0/8`: {"-trusted-proxies", "10.0.0.1,lb.internal"},
		`-trusted-proxies is "0.0.0.0/0", must be addresses or prefixes of proxies`:            {"-trusted-proxies", "0.0.0.0/0"},
		`-trusted-proxies is "::ffff:10.0.0.0/104", must be addresses or prefixes of proxies`:  {"-trusted-proxies", "::ffff:10.0.0.0/104"},
		`-log is "xml", must be text or json`:                                                  {"-log", "xml"},
		`there is an argument "x", must be flags only`:                                         {"x"},
	} {
		_, err := parse(args, noEnv, nil)
		require.ErrorContains(t, err, want)
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:80", "[::1]:80", "127.1.2.3:80", "[::ffff:127.0.0.1]:80"} {
		_, err := parse([]string{"-listen", listen}, noEnv, nil)
		require.NoError(t, err)
	}
}

// README.md names each flag of the usage text.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var usage bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, noEnv, nil, &usage))
	names := regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(usage.String(), -1)
	require.Greater(t, len(names), 20)
	for _, name := range names {
		require.Contains(t, string(page), "-"+name[1])
	}
}

func TestBadFlagsAreStatus2(t *testing.T) {
	var stderr bytes.Buffer
	require.Equal(t, 2, run(context.Background(), []string{"-workers", "x"}, noEnv, nil, &stderr))
	stderr.Reset()
	require.Equal(t, 2, run(context.Background(), []string{"-log", "xml"}, noEnv, nil, &stderr))
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"))
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-version"}, noEnv, &stdout, nil))
	require.Regexp(t, `^timerd \S+, commit .+, `+regexp.QuoteMeta(runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+", time zones "+zones.Find().String())+`\n$`, stdout.String())
}

// Receivers can make net/http write to package log. Those lines reach the daemon's log only at
// debug level.
func TestNetHTTPLogsAtDebug(t *testing.T) {
	logger, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(logger)
		slog.SetLogLoggerLevel(slog.LevelInfo)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	for _, level := range []string{"info", "debug"} {
		var stderr bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		run(ctx, []string{"-store", "pebble:" + t.TempDir(), "-listen", "127.0.0.1:0", "-log-level", level}, noEnv, nil, &stderr)
		require.Contains(t, stderr.String(), "zones=\""+zones.Find().String())
		log.Print("unhandled response frame type")
		require.Equal(t, level == "debug", strings.Contains(stderr.String(), "unhandled response frame type"))
	}
}
