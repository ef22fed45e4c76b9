package console

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// marker is a header that no form can send. A script of another origin can send it only after a
// preflight request, which the console does not answer.
const marker = "X-Limbo-Console"

// guard refuses requests that another site may have caused.
func (c *Console) guard(r *http.Request) error {
	forbidden := func(format string, args ...any) error {
		return &failure{Status: http.StatusForbidden, Message: fmt.Sprintf(format, args...)}
	}
	if c.options.Token == "" && !c.knownHost(r.Host) {
		return forbidden("Host is %.64q, must be localhost, a loopback address or one of Options.Hosts without a token", r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		// A link from another site may open the page, but no other site may make the
		// console read the store.
		if strings.HasPrefix(r.URL.Path, "/api/") && site != "" && site != "same-origin" && site != "none" {
			return forbidden("Sec-Fetch-Site is %.64q, must be same-origin or none", site)
		}
		return nil
	case http.MethodPost:
	default:
		return &failure{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("the method is %.64q, must be GET or POST", r.Method)}
	}
	if err := c.crossOrigin.Check(r); err != nil {
		return forbidden("Sec-Fetch-Site is %.64q and Origin %.64q, must be those of a page of this console: %v", site, r.Header.Get("Origin"), err)
	}
	if value := r.Header.Get(marker); value != "1" {
		return forbidden("%s is %.64q, must be 1", marker, value)
	}
	return nil
}

func (c *Console) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return slices.ContainsFunc(c.options.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// client returns the address of the client that sent a request: the peer's, or, while that is a
// trusted proxy's, the one from which the proxy says to have got the request. Proxies append to
// X-Forwarded-For, so everything left of an address that is not trusted may be invented. An entry
// that is no address counts as the proxy that passed it on.
func (c *Console) client(r *http.Request) netip.Addr {
	client, _ := addressOf(r.RemoteAddr)
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, entry := range slices.Backward(entries) {
		trusted := slices.ContainsFunc(c.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(client) })
		from, err := addressOf(strings.TrimSpace(entry))
		if !trusted || err != nil {
			break
		}
		client = from
	}
	return client
}

// addressOf returns the address in a text, with or without a port and brackets. A text without an
// address, such as the peer of a Unix socket, has the zero Addr.
func addressOf(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone(""), err
}

// networkOf returns the network by which wrong tokens are counted: an IPv4 address, or the /64 of an
// IPv6 address, because one machine has many addresses in its network.
func networkOf(a netip.Addr) netip.Prefix {
	network, _ := a.Prefix(min(a.BitLen(), 64)) // the zero Prefix for the zero Addr
	return network
}

// authorize refuses a request without a session, if there is a token.
func (c *Console) authorize(r *http.Request) error {
	if c.sessions.valid(r) {
		return nil
	}
	return &failure{Status: http.StatusUnauthorized, Message: "there is no session, or it has expired: enter the token"}
}
