// Package webhook is a handler of durable timers that calls an HTTP address.
//
//	h, err := webhook.New(webhook.Options{Secret: secret})
//	…
//	w, err := timers.NewWorker(h.Handle, durable.WorkerOptions{Concurrency: 64})
//
// A timer is scheduled with the encoded call as its body:
//
//	body, err := webhook.Encode(webhook.Call{URL: "https://example.com/remind", Body: []byte(`{"order":7}`)})
//	…
//	timers.Schedule(ctx, durable.Timer{Key: "order-7", After: time.Hour, Body: body})
//
// # What is sent
//
// The method, the headers and the body of the [Call], and these headers, which a
// call cannot set itself:
//
//	Idempotency-Key   the timer's ID, the same in all attempts
//	Limbo-Timer       the timer's key, with percent encoding
//	Limbo-Due         when it was due, RFC 3339 with milliseconds, UTC
//	Limbo-Schedule    of an occurrence: its schedule's key, with percent encoding
//	Limbo-Planned     of an occurrence: its planned time, in the form of Limbo-Due
//	Limbo-Attempt     the attempt, from 1
//	Limbo-Fence       a number that grows with each attempt; it orders writers
//	Limbo-Signature   see Sign; only with Options.Secret
//
// A timer runs at least once: the receiver should remember the Idempotency-Key of
// what it has done. If a connection breaks that was kept open from an earlier
// call, the request can be sent a second time in the same attempt.
//
// # What the answer means
//
//	2xx                   done
//	408, 425, 429, 5xx    tried again; Retry-After is honoured, up to Options.MaxRetryAfter
//	no answer in time     tried again, and so is a connection that fails
//	3xx                   a dead letter at once: redirects are not followed
//	other 4xx             a dead letter at once
//	101                   a dead letter at once: no upgrade was asked for
//	refused address       a dead letter at once, and so is a body that is no Call
//
// The status decides, even if the body does not end in time. Of the reply at most
// Options.MaxReply bytes are read, and the start of them is kept in the timer's last
// error if the call failed. Nothing that a receiver sends, or does not send, makes a
// call take longer than its timeout. A connection is closed if a write to it, of at
// most 32 KiB, takes longer than 10 s.
//
// net/http logs some of what receivers send against the protocol, such as unknown frames of
// HTTP/2, one line each and with package log. A program that calls receivers it does not trust
// should discard these lines or give them a low level: see [log/slog.SetLogLoggerLevel].
//
// # Where a call may go
//
// Only to public addresses, unless [Options].Allow has others: not to private,
// loopback, link-local, multicast, unspecified or reserved ones, in IPv4 and IPv6,
// nor to such an IPv4 address within an IPv6 address (mapped, NAT64, 6to4). The
// check is made on the address that is dialled, after the name was resolved, so
// that a name which changes its address does not get around it. Proxies from the
// environment are not used.
//
// # One slow host
//
// At most [Options].PerHost calls to one host and port, however these are written, are
// under way. One more
// waits for a place up to [Options].HostWait, if fewer than PerHost do so already;
// otherwise it is put off, which counts as no attempt: for as long as the calls
// that are under way and the ones put off before it should take, at most
// [Options].MaxSnooze. So one host takes at most twice PerHost of a worker's slots:
// let a worker's Concurrency be a few times that.
package webhook
