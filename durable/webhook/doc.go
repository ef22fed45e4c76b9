// Package webhook makes an HTTP request when a durable timer is due: the method [Handler.Handle] is
// a [durable.Handler].
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
// # The request
//
// The request has the method, the headers and the body of the [Call], and these headers, which a
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
// A timer runs at least once: the receiver should remember the Idempotency-Key of completed work.
// If a connection that was kept open from an earlier call breaks, the request can be sent a second
// time in the same attempt.
//
// # The reply
//
//	2xx                   done
//	408, 425, 429, 5xx    tried again; Retry-After is honoured, up to Options.MaxRetryAfter
//	no answer in time     tried again, and so is a connection that fails
//	3xx                   a dead letter at once: redirects are not followed
//	other 4xx             a dead letter at once
//	101                   a dead letter at once: no upgrade was requested
//	refused address       a dead letter at once, and so is a body that is no Call
//
// The status decides, even if the body does not end in time. At most Options.MaxReply bytes of the
// reply are read; if the call failed, their start is kept in the timer's last error. A receiver
// cannot make a call take longer than its timeout, whatever it sends or does not send. A
// connection is closed if a write to it, of at most 32 KiB, takes longer than 10 s.
//
// net/http logs some protocol violations of receivers, such as unknown HTTP/2 frames, one line
// each and with package log. A program that calls receivers it does not trust should discard these
// lines or give them a low level: see [log/slog.SetLogLoggerLevel].
//
// # Allowed addresses
//
// Calls go only to public addresses, unless [Options].Allow has others: not to private, loopback,
// link-local, multicast, unspecified or reserved ones, in IPv4 and IPv6, nor to such an IPv4
// address within an IPv6 address (mapped, NAT64, 6to4). The check applies to the dialled address,
// after the name was resolved, so a name that changes its address does not bypass it. Proxies from
// the environment are not used.
//
// # Slow hosts
//
// At most [Options].PerHost calls to one host and port, however these are written, run at once. A
// further call waits for a slot for up to [Options].HostWait, if fewer than PerHost calls wait
// already. Otherwise it is postponed, which does not count as an attempt, until the running calls
// and the calls postponed before it should have finished, at most [Options].MaxSnooze. So one host
// takes at most twice PerHost of a worker's slots: set a worker's Concurrency to a few times that.
package webhook
