package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/daemon"
)

// healthTimeout bounds a whole check. It is longer than the API's own timeout for its store.
const healthTimeout = 5 * time.Second

// checkHealthFlags checks the flags that health uses.
func checkHealthFlags(c daemon.Config) error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("timerd: -listen is %q, must be host:port", c.Listen)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return fmt.Errorf("timerd: -tls-cert is %q and -tls-key is %q, must be both files or none", c.TLSCert, c.TLSKey)
	}
	return nil
}

// health asks the timerd that runs with the same -listen and -tls-* flags whether it is healthy,
// and returns nil if so.
func health(ctx context.Context, c daemon.Config) error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("timerd: -listen: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return fmt.Errorf("timerd: -tls-cert: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{
			// The certificate names the host by which clients know timerd, not this address. The
			// check sends nothing secret and only asks whether this machine's own server answers.
			InsecureSkipVerify: true,
			Certificates:       []tls.Certificate{cert}, // for -tls-client-ca
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	url := scheme + "://" + net.JoinHostPort(reachable(host), port) + "/healthz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("timerd: %w", err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("timerd: not healthy: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		reply, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("timerd: not healthy: %s is answered with %s: %s", url, res.Status, reply)
	}
	return nil
}

// reachable returns the host at which a server that listens on host can be reached from this
// machine: loopback if it listens on all addresses.
func reachable(host string) string {
	if host == "" {
		return "localhost"
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		if a.Is4() {
			return "127.0.0.1"
		}
		return "::1"
	}
	return host
}
