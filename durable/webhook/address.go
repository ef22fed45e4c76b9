package webhook

import (
	"fmt"
	"net/netip"
	"syscall"
)

// AddressError is the error of a call whose host has an address that is not allowed.
type AddressError struct{ Addr netip.Addr }

func (e *AddressError) Error() string {
	return fmt.Sprintf("webhook: address %v is not public, and not among the allowed ones", e.Addr)
}

// nonPublic are the IPv4 ranges that are not public, by the registry of special addresses (RFC 6890
// and its updates).
var nonPublic = prefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carriers' NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, clouds' metadata
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocols
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // relays of 6to4
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, broadcast
)

// nonPublic6 are the ranges within global6, IPv6's global unicast, that are not public. No address
// outside global6 is public.
var (
	global6    = netip.MustParsePrefix("2000::/3")
	nonPublic6 = prefixes(
		"2001::/23",     // protocols, among them Teredo
		"2001:db8::/32", // documentation
		"3fff::/20",     // documentation
	)
)

// embedding are the IPv6 ranges whose addresses contain an IPv4 address, with its offset in bytes.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

func within(a netip.Addr, all []netip.Prefix) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// inner returns the IPv4 address in an IPv6 address, or else a, without its zone.
func inner(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	for _, e := range embedding {
		if e.prefix.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[e.at : e.at+4]))
		}
	}
	return a
}

// permitted reports whether a call may go to an address: it is public, or in allow. If an IPv6
// address contains an IPv4 address, that decides.
func permitted(a netip.Addr, allow []netip.Prefix) bool {
	in := inner(a)
	switch {
	case within(a.Unmap().WithZone(""), allow) || within(in, allow):
		return true
	case in.Is4():
		return !within(in, nonPublic)
	}
	return global6.Contains(in) && !within(in, nonPublic6)
}

// control is called by the dialer with each resolved address, before it connects.
func (h *Handler) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("webhook: address %q: %w", address, err)
	}
	if !permitted(ap.Addr(), h.o.Allow) {
		return &AddressError{Addr: ap.Addr()}
	}
	return nil
}
