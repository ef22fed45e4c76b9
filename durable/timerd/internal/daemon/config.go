// Package daemon runs timerd: it opens a store, serves the API, and runs a worker.
package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// Config has the values of the command's flags, and hooks for tests and the tour.
type Config struct {
	Listen    string // host:port
	Page      string // host:port of the live page, on loopback; empty: no page
	Store     string // pebble:DIR, redis://… and so on
	Namespace string // Redis: the prefix of all keys
	// WaitReplicas, for Redis, is the number of replicas that must confirm a change.
	WaitReplicas int
	// Memory, for a folder, is the size of its cache and two MemTables in MiB; 0: 128.
	Memory      int
	Shards      int
	Limits      durable.Limits
	Token       string // required unless Listen is a loopback address
	Console     string // on, read-only or off; empty: off
	TLSCert     string // a file; with TLSKey it turns on TLS for the API
	TLSKey      string // a file
	TLSClientCA string // a file; clients need a certificate from one of its CAs
	Logger      *slog.Logger

	// TrustedProxies are networks of proxies whose X-Forwarded-For the console believes.
	TrustedProxies []netip.Prefix

	Workers     int // maximum number of concurrent callbacks; 0: no worker
	Name        string
	Lease       time.Duration
	MaxAttempts int
	Backoff     time.Duration
	MaxBackoff  time.Duration
	Grace       time.Duration

	Secret      []byte
	Allow       []netip.Prefix
	CallTimeout time.Duration
	PerHost     int
	MaxSnooze   time.Duration

	WrapStore   func(durable.Store) durable.Store     // may be nil
	WrapHandler func(durable.Handler) durable.Handler // may be nil
	OnListen    func(net.Addr)                        // called when the API is ready; may be nil
	OnPage      func(net.Addr)                        // called when the page is ready; may be nil
}

// Check checks the values that no other package checks. Its error names the flag, its value and its
// range.
func (c Config) Check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return flagError("listen", c.Listen, "host:port")
	}
	if c.Token == "" && !isLoopback(host) {
		return flagError("listen", c.Listen, "a loopback address such as 127.0.0.1:7717 unless -token-file or TIMERD_TOKEN gives a token")
	}
	if c.Page != "" {
		if host, _, err := net.SplitHostPort(c.Page); err != nil || !isLoopback(host) {
			return flagError("http", c.Page, "host:port of loopback such as 127.0.0.1:7718: the page asks for no token")
		}
	}
	if c.Token != "" && len(c.Token) < 16 {
		return fmt.Errorf("timerd: the token is %d bytes long, must be at least 16", len(c.Token))
	}
	if strings.ContainsAny(c.Token, " \t\r\n") {
		return fmt.Errorf("timerd: the token has white space in it, must have none")
	}
	if c.Console != "" && c.Console != consoleOn && c.Console != consoleReadOnly && c.Console != consoleOff {
		return flagError("console", c.Console, "on, read-only or off")
	}
	for _, p := range c.TrustedProxies {
		if p.Bits() == 0 || p.Addr().Is4In6() {
			return flagError("trusted-proxies", p.String(), "addresses or prefixes of proxies such as 10.0.0.0/8, not all addresses")
		}
	}
	if c.TLSCert == "" && c.TLSKey != "" {
		return flagError("tls-cert", "", "the file of the certificate whose private key -tls-key names")
	}
	if c.TLSCert != "" && c.TLSKey == "" {
		return flagError("tls-key", "", "the file of the private key of the certificate that -tls-cert names")
	}
	if c.TLSCert == "" && c.TLSClientCA != "" {
		return flagError("tls-client-ca", c.TLSClientCA, "absent without -tls-cert")
	}
	if c.Workers < 0 || c.Workers > 10_000 {
		return flagError("workers", fmt.Sprint(c.Workers), "0 (this process runs no callbacks) to 10000")
	}
	if c.WaitReplicas != 0 && strings.HasPrefix(c.Store, "pebble:") {
		return flagError("wait-replicas", fmt.Sprint(c.WaitReplicas), "0 with a store that has no replicas")
	}
	if c.Memory != 0 && (c.Memory < 4 || c.Memory > 4096) {
		return flagError("memory", fmt.Sprint(c.Memory), "4 to 4096 (MiB)")
	}
	if scheme, rest, _ := strings.Cut(c.Store, ":"); !stores[scheme] || rest == "" {
		return flagError("store", c.Store, "pebble:DIR, redis://host:port/db, rediss://…, redis+cluster://… or rediss+cluster://…")
	}
	return nil
}

var stores = map[string]bool{"pebble": true, "redis": true, "rediss": true, "redis+cluster": true, "rediss+cluster": true}

func flagError(name, value, must string) error {
	return fmt.Errorf("timerd: -%s is %q, must be %s", name, value, must)
}

// isLoopback reports whether only this machine can reach a host. A name other than localhost could
// resolve to any address.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
