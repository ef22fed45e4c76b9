package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// kind is the effect of repeating a request.
type kind int

const (
	readOnly      kind = iota // the request changes nothing
	idempotent                // a repetition is harmless
	nonIdempotent             // a repetition would create or run something again
)

type request struct {
	method, path string // the path is escaped and has the query
	body         any    // encoded as JSON, if not nil
	kind         kind
	once         bool // without retries
}

// call sends a request until it has an answer or must not be repeated. repeated reports that timerd
// may have carried out an attempt before the last one.
func (c *Client) call(ctx context.Context, r request, reply decoder) (repeated bool, err error) {
	var body []byte
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return false, &Error{Method: r.method, Path: r.path, Code: "invalid", Message: err.Error(), Err: err}
		}
	}
	for attempt := 1; ; attempt++ {
		e := c.attempt(ctx, r, body, reply)
		if e == nil {
			return repeated, nil
		}
		e.Method, e.Attempts = r.method, attempt
		e.Path, _, _ = strings.Cut(r.path, "?")
		e.unsure = e.unsure || repeated
		retry := !r.once && e.retriable && attempt <= c.o.Retries && (r.kind != nonIdempotent || !e.unsure)
		if !retry || !c.pause(ctx, attempt, e) {
			return repeated, e
		}
		repeated = e.unsure
	}
}

// pause waits before the next attempt. It returns false at once if the pause would pass the
// deadline or if the server asks for too long a pause, and false if ctx ends during the pause.
func (c *Client) pause(ctx context.Context, attempt int, e *Error) bool {
	delay := e.RetryAfter
	if delay > MaxRetryAfter {
		return false
	}
	if delay == 0 {
		bound := min(c.o.Backoff<<min(attempt-1, 20), c.o.MaxBackoff) // 1m << 20 does not overflow
		delay = bound - rand.N(bound/2+1)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= delay {
		return false
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		e.Err = errors.Join(e.Err, context.Cause(ctx))
		return false
	}
}

// attempt sends a request once and decodes the answer with reply.
func (c *Client) attempt(ctx context.Context, r request, body []byte, reply decoder) *Error {
	parent := ctx
	ctx, cancel := context.WithTimeoutCause(parent, c.o.Timeout, fmt.Errorf("no reply within %v", c.o.Timeout))
	defer cancel()
	var conn connection
	req, err := http.NewRequestWithContext(conn.trace(ctx), r.method, c.base+r.path, bytes.NewReader(body))
	if err != nil {
		return &Error{Message: err.Error(), Err: err}
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return noReply(ctx, parent, r, err, conn.sent())
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, MaxReply+1))
	if err != nil {
		e := noReply(ctx, parent, r, err, true)
		e.Status = res.StatusCode
		e.Message = "the reply is incomplete: " + e.Message
		return e
	}
	return readReply(r, res, b, reply)
}

// noReply returns the error of a request without a reply. ctx is the attempt's context.
func noReply(ctx, parent context.Context, r request, err error, sent bool) *Error {
	var outer *url.Error
	if errors.As(err, &outer) { // its text repeats the method and the URL
		err = outer.Err
	}
	e := &Error{Message: err.Error(), Err: err, unsure: sent && r.kind != readOnly, retriable: true}
	var certificate *tls.CertificateVerificationError
	switch {
	case parent.Err() != nil:
		e.Err, e.retriable = errors.Join(err, context.Cause(parent)), false
		e.Message = context.Cause(parent).Error()
	case ctx.Err() != nil:
		e.Message = context.Cause(ctx).Error() // not the timeout of Options.HTTPClient
	case errors.As(err, &certificate): // the handshake failed, so nothing was sent
		e.unsure, e.retriable = false, false
	}
	return e
}

// readReply decodes an answer with reply, or returns its error.
func readReply(r request, res *http.Response, b []byte, reply decoder) *Error {
	e := &Error{Status: res.StatusCode, RetryAfter: retryAfter(res.Header.Get("Retry-After"))}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.retriable = true
	}
	success := res.StatusCode >= 200 && res.StatusCode < 300
	if len(b) > MaxReply {
		e.Message, e.unsure, e.retriable = fmt.Sprintf("the reply is more than %d bytes long", MaxReply), r.kind != readOnly, false
		return e
	}
	var f failure
	if !success && json.Unmarshal(b, &f) == nil && f.Error != nil && f.Error.Code != "" {
		f.fill(e)
		e.unsure = r.kind != readOnly && e.Status >= 500 && !outcomeKnown(e.Code, r.kind)
		// A batch must not be repeated as a whole once its timers have results.
		e.retriable = e.retriable && e.Code != "unconfirmed" && len(e.receipts) == 0
		return e
	}
	if (success || f.Result != "") && reply(b) {
		return nil
	}
	e.Message = describeForeign(res, b)
	// A proxy that refuses or redirects a request has not forwarded it. With 200 or 5xx it may
	// have.
	e.unsure = r.kind != readOnly && (success || res.StatusCode >= 500)
	return e
}

// outcomeKnown reports whether the code of a 5xx reply tells if the change was made.
func outcomeKnown(code string, k kind) bool {
	switch code {
	case "full", "unconfirmed":
		return true
	case "store", "closed", "timeout":
		return k != nonIdempotent // some of several steps, as in a backfill, may have been made
	}
	return false // unsure, or the code of a gateway
}

// describeForeign describes a reply that is not timerd's.
func describeForeign(res *http.Response, b []byte) string {
	s := "the reply is not timerd's: " + res.Status
	if to := res.Header.Get("Location"); to != "" {
		s += " to " + quoteShort(to)
	}
	if ct := res.Header.Get("Content-Type"); ct != "" {
		s += ", " + quoteShort(ct)
	}
	if len(b) == 0 {
		return s + ", empty"
	}
	return s + ", " + quoteShort(string(bytes.TrimSpace(b[:min(len(b), 1000)])))
}

// retryAfter parses a Retry-After header: seconds or a date. It returns 0 if there is none.
func retryAfter(s string) time.Duration {
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// connection observes whether a request may have left this process. A RoundTripper that does not
// support httptrace calls neither hook, and then it may have.
type connection struct{ requested, obtained atomic.Bool }

func (c *connection) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.requested.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.obtained.Store(true) },
	})
}

func (c *connection) sent() bool { return c.obtained.Load() || !c.requested.Load() }
