package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	tlsRecheck = time.Second // between two checks for changed files
	maxPEM     = 1 << 20     // bytes of a file with certificates or a key
)

// tlsFiles reads the files of the API's TLS, again whenever they change.
type tlsFiles struct {
	cert, key, clientCA string // clientCA may be empty
	logger              *slog.Logger
	now                 func() time.Time
	current             atomic.Pointer[tls.Config]

	mu         sync.Mutex
	checked    time.Time    // guarded by mu
	lastStates [3]fileState // guarded by mu; taken before the last read of the contents
	failure    string       // guarded by mu; of the last read, empty if it succeeded
}

// fileState changes when a file changes.
type fileState struct {
	modified, size int64
	err            string
}

// tlsConfig returns the configuration of the API's listener, or nil without -tls-cert.
func tlsConfig(c Config, now func() time.Time) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	f := &tlsFiles{cert: c.TLSCert, key: c.TLSKey, clientCA: c.TLSClientCA, logger: c.Logger, now: now}
	f.checked, f.lastStates = now(), f.states()
	config, err := f.load()
	if err != nil {
		return nil, err
	}
	f.current.Store(config)
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.configFor}, nil
}

// configFor returns the configuration for one handshake.
func (f *tlsFiles) configFor(*tls.ClientHelloInfo) (*tls.Config, error) {
	// A handshake does not wait for the check of another: a file system that hangs would block all
	// handshakes.
	if f.mu.TryLock() {
		f.check()
		f.mu.Unlock()
	}
	return f.current.Load(), nil
}

// check reads the files again if they have changed. If the new files are unusable, the previous
// configuration stays. check repeats a failed read the next time even without a change, because a
// new owner or mode of a file changes neither its time nor its size. f.mu is held.
func (f *tlsFiles) check() {
	now := f.now()
	if now.Sub(f.checked) < tlsRecheck {
		return
	}
	f.checked = now
	// The states are taken before the contents are read, so that the next check sees a file that
	// changes in between.
	states := f.states()
	changed := states != f.lastStates
	if !changed && f.failure == "" {
		return
	}
	f.lastStates = states
	config, err := f.load()
	if err != nil {
		if changed || err.Error() != f.failure {
			f.logger.Warn("TLS keeps its previous certificates", "error", err)
		}
		f.failure = err.Error()
		return
	}
	f.failure = ""
	f.current.Store(config)
	f.logger.Info("TLS has new certificates", "tls-cert", f.cert)
}

func (f *tlsFiles) states() (s [3]fileState) {
	for i, name := range []string{f.cert, f.key, f.clientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			s[i].err = err.Error()
			continue
		}
		s[i] = fileState{modified: info.ModTime().UnixNano(), size: info.Size()}
	}
	return s
}

func (f *tlsFiles) load() (*tls.Config, error) {
	certPEM, err := readPEM("tls-cert", f.cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readPEM("tls-key", f.key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("timerd: -tls-cert is %q and -tls-key is %q, must be a certificate and its private key in PEM: %w", f.cert, f.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}
	if f.clientCA == "" {
		return config, nil
	}
	caPEM, err := readPEM("tls-client-ca", f.clientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(caPEM) {
		return nil, flagError("tls-client-ca", f.clientCA, "a file with at least one certificate in PEM")
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.SessionTicketsDisabled = true // a client whose CA was removed must not resume a session
	return config, nil
}

func readPEM(flag, name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("timerd: -%s is %q, must be a file that can be read: %w", flag, name, withoutPath(err))
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err != nil {
		return nil, fmt.Errorf("timerd: -%s is %q, must be a file that can be read: %w", flag, name, withoutPath(err))
	}
	if len(b) > maxPEM {
		return nil, flagError(flag, name, fmt.Sprintf("a file of at most %d bytes", maxPEM))
	}
	return b, nil
}

// withoutPath returns the cause of a file's error, without the file's name, which would appear
// twice.
func withoutPath(err error) error {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
