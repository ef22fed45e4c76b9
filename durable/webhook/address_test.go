package webhook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Case 28: no call goes to an address that is not public.
func TestPermitted(t *testing.T) {
	for _, public := range []string{
		"1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "100.63.0.1", "100.128.0.0", "192.0.1.1", "223.255.255.255",
		"2606:4700::1111", "2a00::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
	} {
		require.True(t, permitted(netip.MustParseAddr(public), nil), public)
	}
	for _, refused := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.8.8.8", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "3fff::1", "100::1", "4000::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "2002:7f00:1::", "2002:a00:1::",
	} {
		require.False(t, permitted(netip.MustParseAddr(refused), nil), refused)
	}
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd00::1": true, "fd00::1%eth0": true,
		"10.2.0.1": false, "::ffff:10.2.0.1": false, "64:ff9b::10.2.0.1": false, "fd01::1": false, "8.8.8.8": true,
	} {
		require.Equal(t, want, permitted(netip.MustParseAddr(addr), allow), addr)
	}
}

// Case 28: a name or an address that resolves to this machine is not dialled.
func TestPrivateAddressIsFinal(t *testing.T) {
	var called atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	h, err := New(Options{})
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		err := h.Handle(t.Context(), fired(t, Call{URL: "http://" + host + port}))
		require.Error(t, err, host)
		var refused *AddressError
		require.ErrorAs(t, err, &refused, host)
		require.Equal(t, dead, verdict(err), host)
	}
	require.Zero(t, called.Load())
}

// nameServer answers queries for the IPv4 address of any name with the given addresses in turn,
// and repeats the last one.
func nameServer(t *testing.T, addrs ...string) *net.Resolver {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12 // of the question: a name of labels, a type and a class
			for buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			end += 5
			isA := buf[end-4] == 0 && buf[end-3] == 1
			reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, buf[12:min(end, n)]...)
			if isA {
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // its name is that at 12; TTL 0
				ip := netip.MustParseAddr(addrs[0]).As4()
				reply = append(reply, ip[:]...)
				if len(addrs) > 1 {
					addrs = addrs[1:]
				}
			}
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

// Case 28: a name whose address changes between two calls does not bypass the check, which applies
// to the dialled address.
func TestRebindingIsRefused(t *testing.T) {
	var called atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]

	h, err := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	require.NoError(t, err)
	h.dialer.Resolver = nameServer(t, "127.0.0.1", "127.0.0.2")
	h.transport.DisableKeepAlives = true
	call := fired(t, Call{URL: "http://rebind.example.com" + port})
	require.NoError(t, h.Handle(t.Context(), call))
	err = h.Handle(t.Context(), call)
	var refused *AddressError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, netip.MustParseAddr("127.0.0.2"), refused.Addr)
	require.EqualValues(t, 1, called.Load())
}

// A proxy would bypass the address check.
func TestNoProxy(t *testing.T) {
	h, err := New(Options{})
	require.NoError(t, err)
	require.Nil(t, h.transport.Proxy)
}
