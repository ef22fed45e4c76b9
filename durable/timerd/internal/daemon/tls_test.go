package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority is a CA.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue returns a certificate for 127.0.0.1, for servers and clients, and its key.
func (a *authority) issue(serial int64) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) pair(serial int64) []tls.Certificate {
	pair, err := tls.X509KeyPair(a.issue(serial))
	require.NoError(a.t, err)
	return []tls.Certificate{pair}
}

// tlsFixture is a TLS listener with a clock that only the test advances.
type tlsFixture struct {
	t    *testing.T
	ca   *authority
	c    Config
	now  atomic.Int64 // nanoseconds
	edit time.Time    // the files' latest modification time
	log  bytes.Buffer
	addr string
}

func newTLSFixture(t *testing.T, clientCA []byte) *tlsFixture {
	dir := t.TempDir()
	f := &tlsFixture{t: t, ca: newAuthority(t), edit: time.Now().Add(-time.Hour)}
	f.c = Config{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem"), Logger: slog.New(slog.NewTextHandler(&f.log, nil))}
	certPEM, keyPEM := f.ca.issue(10)
	f.write(f.c.TLSCert, certPEM)
	f.write(f.c.TLSKey, keyPEM)
	if clientCA != nil {
		f.c.TLSClientCA = filepath.Join(dir, "ca.pem")
		f.write(f.c.TLSClientCA, clientCA)
	}
	config, err := tlsConfig(f.c, func() time.Time { return time.Unix(0, f.now.Load()) })
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	f.addr = l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "x")
			}()
		}
	}()
	return f
}

// write changes a file, and its modification time.
func (f *tlsFixture) write(name string, content []byte) {
	require.NoError(f.t, os.WriteFile(name, content, 0o600))
	f.edit = f.edit.Add(time.Second)
	require.NoError(f.t, os.Chtimes(name, f.edit, f.edit))
}

// dial returns the serial number of the server's certificate. It reads a byte, because in TLS 1.3 a
// client learns only after its handshake whether the server accepts its certificate.
func (f *tlsFixture) dial(config *tls.Config) (int64, error) {
	if config.RootCAs == nil {
		config.RootCAs = f.ca.pool()
	}
	conn, err := tls.Dial("tcp", f.addr, config)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func (f *tlsFixture) serves(serial int64) {
	f.t.Helper()
	got, err := f.dial(&tls.Config{})
	require.NoError(f.t, err)
	require.Equal(f.t, serial, got)
}

func (f *tlsFixture) warnings() int { return strings.Count(f.log.String(), "level=WARN") }

func TestTLSReadsItsFilesAgain(t *testing.T) {
	f := newTLSFixture(t, nil)
	f.serves(10)
	certPEM, keyPEM := f.ca.issue(11)
	f.write(f.c.TLSCert, certPEM)
	f.write(f.c.TLSKey, keyPEM)
	f.now.Add(int64(tlsRecheck) - 1)
	f.serves(10) // the files are checked once a second
	f.now.Add(1)
	f.serves(11)
	require.Zero(t, f.warnings())
	require.Contains(t, f.log.String(), "TLS has new certificates")
}

// Unusable new files leave the previous certificate in use. Each change of them logs one warning.
func TestTLSKeepsTheCertificateThatWorks(t *testing.T) {
	f := newTLSFixture(t, nil)
	certPEM, keyPEM := f.ca.issue(11)
	later := func(serial int64, warnings int) {
		t.Helper()
		for range 3 {
			f.now.Add(int64(tlsRecheck))
			f.serves(serial)
			require.Equal(t, warnings, f.warnings(), f.log.String())
		}
	}
	f.write(f.c.TLSCert, certPEM) // the key is still the previous one
	later(10, 1)
	require.Contains(t, f.log.String(), "private key does not match")
	f.write(f.c.TLSKey, []byte("no key"))
	later(10, 2)
	require.NoError(t, os.Remove(f.c.TLSKey))
	later(10, 3)
	f.write(f.c.TLSKey, keyPEM)
	later(11, 3)
}

// A failed read is repeated even if times and sizes stay, because a file's mode may have changed.
func TestTLSRepeatsAFailedRead(t *testing.T) {
	f := newTLSFixture(t, nil)
	certPEM, keyPEM := f.ca.issue(11)
	f.write(f.c.TLSCert, certPEM)
	f.write(f.c.TLSKey, bytes.Repeat([]byte("x"), len(keyPEM)))
	f.now.Add(int64(tlsRecheck))
	f.serves(10)
	require.NoError(t, os.WriteFile(f.c.TLSKey, keyPEM, 0o600))
	require.NoError(t, os.Chtimes(f.c.TLSKey, f.edit, f.edit))
	f.now.Add(int64(tlsRecheck))
	f.serves(11)
	require.Equal(t, 1, f.warnings())
}

func TestTLSClientCertificates(t *testing.T) {
	clients, others := newAuthority(t), newAuthority(t)
	f := newTLSFixture(t, clients.pem())
	accepts := func(want bool, pair []tls.Certificate) {
		t.Helper()
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			_, err := f.dial(&tls.Config{Certificates: pair, MaxVersion: version})
			require.Equal(t, want, err == nil, "%v", err)
		}
	}
	accepts(false, nil)
	accepts(false, others.pair(1))
	accepts(true, clients.pair(2))

	f.write(f.c.TLSClientCA, others.pem())
	f.now.Add(int64(tlsRecheck))
	accepts(true, others.pair(1))
	accepts(false, clients.pair(2))

	f.write(f.c.TLSClientCA, []byte("no CA"))
	f.now.Add(int64(tlsRecheck))
	accepts(true, others.pair(1))
	accepts(false, nil)
	require.Equal(t, 1, f.warnings())
}

// A client whose CA was removed cannot resume its session.
func TestTLSChecksResumedSessions(t *testing.T) {
	clients, others := newAuthority(t), newAuthority(t)
	f := newTLSFixture(t, clients.pem())
	config := &tls.Config{Certificates: clients.pair(2), RootCAs: f.ca.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	_, err := f.dial(config)
	require.NoError(t, err)
	f.write(f.c.TLSClientCA, others.pem())
	f.now.Add(int64(tlsRecheck))
	_, err = f.dial(config)
	require.Error(t, err)
}

func TestTLSVersion(t *testing.T) {
	f := newTLSFixture(t, nil)
	_, err := f.dial(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
}

// The daemon serves HTTP/2 and HTTP/1.1 over TLS, and no plain HTTP.
func TestRunServesTLS(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	c := Config{Store: "pebble:" + filepath.Join(dir, "timers"), TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")}
	certPEM, keyPEM := ca.issue(10)
	require.NoError(t, os.WriteFile(c.TLSCert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(c.TLSKey, keyPEM, 0o600))
	url, stop := start(t, c)
	secure := strings.Replace(url, "http:", "https:", 1)
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool()}, ForceAttemptHTTP2: http2}
		res, err := (&http.Client{Transport: transport}).Get(secure + "/timers")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, http2, res.ProtoMajor == 2)
		transport.CloseIdleConnections()
	}
	status, reply := do(t, "GET", url+"/timers", "")
	require.Equal(t, 400, status)
	require.Contains(t, reply, "HTTP request to an HTTPS server")
	require.NoError(t, stop())
}

func TestBadTLSFiles(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	certPEM, keyPEM := ca.issue(10)
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	_, otherKey := ca.issue(11)
	cert, key, large := file("cert", certPEM), file("key", keyPEM), file("large", make([]byte, maxPEM+1))
	other, none := file("other", otherKey), filepath.Join(dir, "none")
	for want, c := range map[string]Config{
		`-tls-cert is "", must be the file`:                                                    {TLSKey: key},
		`-tls-key is "", must be the file`:                                                     {TLSCert: cert},
		`-tls-client-ca is "ca", must be absent without -tls-cert`:                             {TLSClientCA: "ca"},
		fmt.Sprintf(`-tls-cert is %q, must be a file that can be read: no such file`, none):    {TLSCert: none, TLSKey: key},
		fmt.Sprintf(`-tls-key is %q, must be a file that can be read: no such file`, none):     {TLSCert: cert, TLSKey: none},
		fmt.Sprintf(`-tls-key is %q, must be a file that can be read: is a directory`, dir):    {TLSCert: cert, TLSKey: dir},
		fmt.Sprintf(`-tls-cert is %q, must be a file of at most 1048576 bytes`, large):         {TLSCert: large, TLSKey: key},
		fmt.Sprintf(`-tls-cert is %q and -tls-key is %q, must be a certificate`, cert, other):  {TLSCert: cert, TLSKey: other},
		fmt.Sprintf(`-tls-cert is %q and -tls-key is %q, must be a certificate`, key, key):     {TLSCert: key, TLSKey: key},
		fmt.Sprintf(`-tls-client-ca is %q, must be a file that can be read: no such`, none):    {TLSCert: cert, TLSKey: key, TLSClientCA: none},
		fmt.Sprintf(`-tls-client-ca is %q, must be a file with at least one certificate`, key): {TLSCert: cert, TLSKey: key, TLSClientCA: key},
	} {
		c.Listen, c.Store, c.Logger = "127.0.0.1:0", "pebble:"+filepath.Join(dir, "timers"), slog.New(slog.DiscardHandler)
		require.ErrorContains(t, Run(t.Context(), c), want)
	}
}

// Listening beyond loopback logs one warning without TLS, and none with TLS.
func TestPlainTextBeyondLoopbackWarns(t *testing.T) {
	f := newTLSFixture(t, nil)
	for _, c := range []Config{
		{Listen: "0.0.0.0:0", Token: "0123456789abcdef"},
		{Listen: "0.0.0.0:0", Token: "0123456789abcdef", TLSCert: f.c.TLSCert, TLSKey: f.c.TLSKey},
		{Listen: "127.0.0.1:0"},
	} {
		want := 0
		if c.Listen == "0.0.0.0:0" && c.TLSCert == "" {
			want = 1
		}
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		c.Store, c.Logger = "pebble:"+filepath.Join(t.TempDir(), "timers"), slog.New(slog.NewTextHandler(&log, nil))
		c.OnListen = func(net.Addr) { cancel() }
		require.NoError(t, Run(ctx, c))
		require.Equal(t, want, strings.Count(log.String(), "level=WARN"), log.String())
	}
}
