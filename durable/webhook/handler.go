package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// Handler makes the calls of timers. It is safe for concurrent use.
type Handler struct {
	o            Options
	hosts        hosts
	dialer       net.Dialer
	dial         func(ctx context.Context, network, address string) (net.Conn, error) // the dialer's; tests replace it
	transport    *http.Transport
	writeTimeout time.Duration // of each write to a connection; tests change it

	calls, done, retried, discarded, postponed atomic.Uint64
}

// Stats are a handler's counts since it was made.
type Stats struct {
	Calls     uint64 // requests sent, or tried
	Done      uint64 // calls answered with 2xx
	Retried   uint64 // failed calls that will be tried again
	Discarded uint64 // final failures, including bodies that are not a Call
	Postponed uint64 // calls postponed because of a busy host; no request was sent
	Hosts     int    // hosts with running calls, now
}

// New returns a handler, or an error that names the option, its value and its range.
func New(o Options) (*Handler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Handler{
		o: o,
		hosts: hosts{
			perHost: o.PerHost, wait: max(o.HostWait, 0), maxSnooze: o.MaxSnooze,
			m: make(map[string]*host),
		},
	}
	h.dialer = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: h.control}
	h.dial = h.dialer.DialContext
	h.writeTimeout = 10 * time.Second
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	h.transport = &http.Transport{
		Proxy:                  nil, // a proxy would dial for us and bypass the address check
		DialContext:            h.connect,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    o.PerHost,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a reply is not worth unpacking
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 64 << 10,         // instead of 4 MiB
			SendPingTimeout:           15 * time.Second, // after which a connection without answers is closed
		},
	}
	return h, nil
}

func (h *Handler) connect(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := h.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, writeTimeout: h.writeTimeout}, nil
}

// conn is a connection with bounds on its writes. A write takes at most writeTimeout: otherwise a
// receiver that sends but does not read would keep the connection and its goroutines forever. A
// TLS connection writes an alert before it closes, which may take 5 s; conn reduces that to 10 ms,
// because net/http closes some connections while it holds the lock of all.
type conn struct {
	net.Conn
	writeTimeout time.Duration
	closing      atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	if !c.closing.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline is called by crypto/tls when it closes the connection.
func (c *conn) SetWriteDeadline(at time.Time) error {
	c.closing.Store(true)
	if soon := time.Now().Add(10 * time.Millisecond); at.After(soon) {
		at = soon
	}
	return c.Conn.SetWriteDeadline(at)
}

// Close closes the connections that are kept open for further calls.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// Stats returns the handler's counts.
func (h *Handler) Stats() Stats {
	return Stats{
		Calls: h.calls.Load(), Done: h.done.Load(), Retried: h.retried.Load(),
		Discarded: h.discarded.Load(), Postponed: h.postponed.Load(), Hosts: h.hosts.len(),
	}
}

// Handle is a [durable.Handler]. It makes the call that is encoded in the timer's body, and returns
//
//   - nil if the answer was 2xx;
//   - an error from durable.Discard if another attempt is useless;
//   - an error from durable.RetryAfter if the reply has a Retry-After;
//   - an error from durable.Snooze if the host has too many calls;
//   - otherwise another error, for which the worker chooses the backoff.
func (h *Handler) Handle(ctx context.Context, f durable.Fired) error {
	call, err := Decode(f.Body)
	if err != nil {
		return h.discard(err)
	}
	u, _ := parseURL(call.URL) // Decode has checked it
	host := hostOf(u)
	postponed, err := h.hosts.enter(ctx, host)
	if err != nil {
		return err
	}
	if postponed > 0 {
		h.postponed.Add(1)
		return durable.Snooze(postponed)
	}
	began := time.Now()
	defer func() { h.hosts.leave(host, time.Since(began)) }()
	h.calls.Add(1)
	return h.do(ctx, f, call, host)
}

func (h *Handler) do(ctx context.Context, f durable.Fired, call Call, host string) error {
	timeout := call.Timeout
	if timeout == 0 {
		timeout = h.o.Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	req, err := h.request(ctx, f, call)
	if err != nil {
		return h.discard(err)
	}
	res, reply, err := h.exchange(req) //nolint:bodyclose // exchange closes it
	if err != nil {
		var refused *AddressError
		if errors.As(err, &refused) {
			return h.discard(fmt.Errorf("%s %s: %w", req.Method, host, refused))
		}
		h.retried.Add(1)
		return fmt.Errorf("webhook: %s %s: %w", req.Method, host, err)
	}
	return h.judge(res, reply, req.Method+" "+host)
}

// exchange sends a request and returns the response and the start of its body, as far as that has
// arrived when the request's context ends. It waits for a goroutine that does the work, because
// net/http does not observe the context everywhere: reading or closing an HTTP/2 body can wait for
// a write to the connection. The goroutine ends with that write; see conn.
func (h *Handler) exchange(req *http.Request) (*http.Response, []byte, error) {
	type answer struct {
		res *http.Response
		err error
	}
	answers := make(chan answer, 1)
	body, w := io.Pipe()
	defer body.Close()
	go func() {
		defer w.Close()
		res, err := h.transport.RoundTrip(req) // not a Client's Do: redirects are not followed
		answers <- answer{res, err}
		if err != nil {
			return
		}
		if res.StatusCode >= 200 { // else the body is the connection itself, whose reads are not bound to a context
			// Read the whole body if it is short, so that the connection can be reused.
			_, _ = io.Copy(w, io.LimitReader(res.Body, int64(h.o.MaxReply)))
		}
		_ = res.Body.Close()
	}()
	ctx := req.Context()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, nil, a.err
		}
		stop := context.AfterFunc(ctx, func() { w.Close() })
		defer stop()
		reply, _ := io.ReadAll(body)
		return a.res, reply, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// hostOf returns the host and port of a URL, the same for all spellings.
func hostOf(u *url.URL) string {
	port := strings.TrimLeft(u.Port(), "0")
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(canonical(u.Hostname()), port)
}

func (h *Handler) request(ctx context.Context, f durable.Fired, call Call) (*http.Request, error) {
	method := call.Method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	id := f.ID.String()
	req.Header.Set("User-Agent", h.o.UserAgent)
	if len(call.Body) > 0 {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	for name, value := range call.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set(HeaderID, id)
	req.Header.Set("Limbo-Timer", url.PathEscape(f.Key))
	req.Header.Set("Limbo-Due", formatTime(f.Due))
	if f.Schedule != "" {
		req.Header.Set("Limbo-Schedule", url.PathEscape(f.Schedule))
		req.Header.Set("Limbo-Planned", formatTime(f.Planned))
	}
	req.Header.Set("Limbo-Attempt", strconv.Itoa(f.Attempt))
	req.Header.Set("Limbo-Fence", strconv.FormatUint(f.Fence, 10))
	if len(h.o.Secret) > 0 {
		req.Header.Set(HeaderSignature, Sign(h.o.Secret, time.Now(), id, call.Body))
	}
	return req, nil
}

func formatTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func (h *Handler) discard(err error) error {
	h.discarded.Add(1)
	return durable.Discard(err)
}
