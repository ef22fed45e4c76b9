package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/daemon"
)

const usage = `timerd keeps durable timers and calls back over HTTP when they are due.

  timerd [flags]          serve; README.md beside the source has the API
  timerd -health [flags]  exit with 0 if the timerd with the same -listen and -tls-* is healthy
  timerd -version         print the version

Environment: TIMERD_TOKEN, TIMERD_SECRET instead of -token-file, -secret-file. TIMERD_LISTEN and so
on give the other flags that serve, except those that the command line gives.

`

type flags struct {
	config  daemon.Config
	version bool
	health  bool
	logJSON bool
	level   slog.Level
}

// parse reads the flags and the files that they name.
func parse(args []string, getenv func(string) string, stderr io.Writer) (flags, error) {
	var f flags
	c := &f.config
	fs := flag.NewFlagSet("timerd", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&c.Listen, "listen", "127.0.0.1:7717", "`host:port` of the API; other than loopback needs a token")
	fs.StringVar(&c.Page, "http", "", "`host:port`, of loopback, of a live page with the metrics, and /metrics for Prometheus; default: none")
	fs.StringVar(&c.Console, "console", "on", "the console at /console/ of -listen: on, read-only or off")
	proxies := fs.String("trusted-proxies", "", "`prefixes` of addresses of proxies whose X-Forwarded-For the console believes, such as 10.0.0.0/8,fd00::1")
	fs.StringVar(&c.Store, "store", "pebble:timerd.db", "`store`: pebble:DIR, redis://host:port/db, rediss://…, redis+cluster://host:port?addr=host:port")
	fs.StringVar(&c.Namespace, "namespace", "limbo", "Redis: the prefix of all keys")
	fs.IntVar(&c.WaitReplicas, "wait-replicas", 0, "Redis: replicas that must confirm a change")
	fs.IntVar(&c.Memory, "memory", 128, "folder: `MiB` for what is kept of the data in memory, 4 to 4096")
	fs.IntVar(&c.Shards, "shards", 16, "shards of a new store, 1 to 1024")
	fs.IntVar(&c.Limits.MaxPending, "max-pending", 0, "waiting and running timers of each shard; 0: no bound")
	fs.IntVar(&c.Limits.MaxDead, "max-dead", 10_000, "dead letters of each shard; the oldest go")
	fs.DurationVar(&c.Limits.MaxDeadAge, "max-dead-age", 0, "how long a dead letter is kept; 0: for good")
	tokenFile := fs.String("token-file", "", "`file` with the token that requests must bring, at least 16 bytes")

	fs.StringVar(&c.TLSCert, "tls-cert", "", "`file` with the API's certificate, and those between it and its CA, in PEM; read again when it changes")
	fs.StringVar(&c.TLSKey, "tls-key", "", "`file` with the private key of -tls-cert, in PEM")
	fs.StringVar(&c.TLSClientCA, "tls-client-ca", "", "`file` with the CAs, in PEM, one of which must have signed a client's certificate")

	fs.IntVar(&c.Workers, "workers", 64, "callbacks at the same time; 0: this process makes none")
	fs.StringVar(&c.Name, "name", "", "the worker's name among those that share a store; default: the host and the process")
	fs.DurationVar(&c.Lease, "lease", 30*time.Second, "after which a dead process's timers run again")
	fs.IntVar(&c.MaxAttempts, "max-attempts", 10, "after which a timer is a dead letter")
	fs.DurationVar(&c.Backoff, "backoff", time.Second, "the first retry comes within this, the next within twice that, …")
	fs.DurationVar(&c.MaxBackoff, "max-backoff", 10*time.Minute, "up to this")
	fs.DurationVar(&c.Grace, "grace", 20*time.Second, "for callbacks in progress, at shutdown")

	secretFile := fs.String("secret-file", "", "`file` with the secret that signs callbacks, at least 16 bytes")
	allow := fs.String("allow", "", "`prefixes` of addresses that callbacks may go to although they are not public, such as 10.0.0.0/8,127.0.0.1/32")
	fs.DurationVar(&c.CallTimeout, "call-timeout", 10*time.Second, "of a callback that has none of its own")
	fs.IntVar(&c.PerHost, "per-host", 8, "callbacks to one host at the same time")
	fs.DurationVar(&c.MaxSnooze, "max-snooze", 10*time.Second, "the longest that a callback is postponed because its host has too many")

	logs := fs.String("log", "text", "text or json")
	fs.TextVar(&f.level, "log-level", slog.LevelInfo, "debug (each request), info, warn or error")

	var serving []string // the flags above
	fs.VisitAll(func(fl *flag.Flag) { serving = append(serving, fl.Name) })
	fs.BoolVar(&f.version, "version", false, "print the versions of timerd, Go and the time zones, and exit")
	fs.BoolVar(&f.health, "health", false, "ask the timerd that listens at -listen whether it is healthy, and exit with 0 or 1")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	if fs.NArg() > 0 {
		return f, fmt.Errorf("timerd: there is an argument %q, must be flags only", fs.Arg(0))
	}
	if f.version {
		return f, nil
	}
	if err := fromEnvironment(fs, serving, getenv); err != nil {
		return f, err
	}
	if f.health {
		return f, checkHealthFlags(f.config)
	}
	return f, f.finish(getenv, *tokenFile, *secretFile, *allow, *proxies, *logs)
}

// fromEnvironment sets those of the named flags that are not set from the environment: -max-dead from
// TIMERD_MAX_DEAD, and so on.
func fromEnvironment(fs *flag.FlagSet, names []string, getenv func(string) string) error {
	set := map[string]bool{}
	fs.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	for _, name := range names {
		variable := "TIMERD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value := getenv(variable)
		if value == "" || set[name] {
			continue
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("timerd: %s is %q, must be a value of -%s: %w", variable, value, name, err)
		}
	}
	return nil
}

func (f *flags) finish(getenv func(string) string, tokenFile, secretFile, allow, proxies, logs string) error {
	token, err := secret(tokenFile, getenv("TIMERD_TOKEN"))
	if err != nil {
		return err
	}
	f.config.Token = string(token)
	if f.config.Secret, err = secret(secretFile, getenv("TIMERD_SECRET")); err != nil {
		return err
	}
	if f.config.Allow, err = prefixes("allow", allow); err != nil {
		return err
	}
	if f.config.TrustedProxies, err = prefixes("trusted-proxies", proxies); err != nil {
		return err
	}
	switch logs {
	case "text", "json":
		f.logJSON = logs == "json"
	default:
		return fmt.Errorf("timerd: -log is %q, must be text or json", logs)
	}
	return f.config.Check()
}

// secret reads a file without its final newline. Without a file it returns the value of the
// environment variable.
func secret(file, env string) ([]byte, error) {
	if file == "" {
		return []byte(env), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("timerd: %w", err)
	}
	b = bytes.TrimRight(b, "\r\n")
	if len(b) == 0 {
		return nil, fmt.Errorf("timerd: file %q is empty, must hold at least 16 bytes", file)
	}
	return b, nil
}

// prefixes returns the addresses and prefixes of a flag's list.
func prefixes(flag, list string) (all []netip.Prefix, err error) {
	if list == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(list, ",") {
		s := strings.TrimSpace(s)
		p, err := netip.ParsePrefix(s)
		if a, e := netip.ParseAddr(s); e == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("timerd: -%s has %q, must be addresses or prefixes such as 10.0.0.0/8", flag, s)
		}
		all = append(all, p)
	}
	return all, nil
}

func (f *flags) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.level}
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
