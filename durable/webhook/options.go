package webhook

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"time"
)

// Options configure a Handler. The zero value is good for calls to public addresses.
type Options struct {
	// Secret is the key with which each request is signed; see Sign. Default: requests are not
	// signed. If set, at least 16 bytes.
	Secret []byte
	// Timeout bounds a call without a timeout of its own, from connecting to the end of the reply.
	// Default 10 s, 1 ms to MaxTimeout. It does not depend on the worker's lease, which is
	// extended during the call.
	Timeout time.Duration
	// Allow lists addresses that may be called although they are not public, such as 10.1.0.0/16.
	// Default: none.
	Allow []netip.Prefix
	// PerHost bounds the concurrent calls to one host and port. Default 8, 1 to 10,000.
	PerHost int
	// HostWait is how long a call beyond PerHost waits for a slot before it is postponed. Default
	// 50 ms, up to 10 s; negative: it does not wait.
	HostWait time.Duration
	// MaxSnooze is the longest time for which a call is postponed when its host has too many.
	// Default 10 s, 100 ms to 1 h.
	MaxSnooze time.Duration
	// MaxRetryAfter bounds the wait that a reply's Retry-After requests. Default 1 h, 1 s to 30
	// days.
	MaxRetryAfter time.Duration
	// MaxReply is the maximum number of bytes that are read of a reply's body. Default 4 KiB, 1 B
	// to 1 MiB. At most 64 KiB of its headers are read.
	MaxReply int
	// UserAgent is sent with calls that do not set the header. Default "limbo-webhook/1".
	UserAgent string
	// TLS is used for https. Default: the system's certificates, TLS 1.2 or newer.
	TLS *tls.Config
}

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Timeout, 10*time.Second)
	setDefault(&o.PerHost, 8)
	setDefault(&o.HostWait, 50*time.Millisecond)
	setDefault(&o.MaxSnooze, 10*time.Second)
	setDefault(&o.MaxRetryAfter, time.Hour)
	setDefault(&o.MaxReply, 4<<10)
	setDefault(&o.UserAgent, "limbo-webhook/1")
	switch {
	case len(o.Secret) > 0 && len(o.Secret) < 16:
		return o, optionError("Secret", bytesLong(len(o.Secret)), "absent, or at least 16 bytes long")
	case o.Timeout < time.Millisecond || o.Timeout > MaxTimeout:
		return o, optionError("Timeout", o.Timeout, fmt.Sprintf("1ms to %v, or 0 for 10s", MaxTimeout))
	case o.PerHost < 1 || o.PerHost > 10_000:
		return o, optionError("PerHost", o.PerHost, "1 to 10000, or 0 for 8")
	case o.HostWait > 10*time.Second:
		return o, optionError("HostWait", o.HostWait, "at most 10s, negative for none, or 0 for 50ms")
	case o.MaxSnooze < 100*time.Millisecond || o.MaxSnooze > time.Hour:
		return o, optionError("MaxSnooze", o.MaxSnooze, "100ms to 1h, or 0 for 10s")
	case o.MaxRetryAfter < time.Second || o.MaxRetryAfter > 30*24*time.Hour:
		return o, optionError("MaxRetryAfter", o.MaxRetryAfter, "1s to 720h, or 0 for 1h")
	case o.MaxReply < 1 || o.MaxReply > 1<<20:
		return o, optionError("MaxReply", o.MaxReply, "1 to 1048576, or 0 for 4096")
	case !isFieldValue(o.UserAgent):
		return o, fieldError("Options.UserAgent", o.UserAgent, "without control characters")
	}
	for _, p := range o.Allow {
		if !p.IsValid() {
			return o, optionError("Allow", p, "valid prefixes")
		}
	}
	return o, nil
}

func setDefault[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}

func optionError(field string, value any, must string) error {
	return &FieldError{Field: "Options." + field, Value: fmt.Sprint(value), Range: must}
}
