package longpoll

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options configures polls. The zero value is a good default.
type Options struct {
	// Wait is how long a poll without a preference waits, 1 ms to 24 h, default 30 s. MaxWait
	// is the longest wait, Wait to 24 h, default 60 s or Wait if that is longer; a poll that
	// asks for more waits for MaxWait.
	Wait, MaxWait time.Duration

	// Query is the name of the query parameter with which a client can set the wait, in seconds
	// ("30", "0.5") or in Go's duration format ("500ms"). Default "wait". A client can also use
	// the header "Prefer: wait=30" (RFC 7240).
	Query string

	// KeepAwake is how often a byte is sent while a poll waits, for proxies that close idle
	// connections. Default 0: never; 10 ms to 24 h. The byte is a newline, which JSON and most
	// text formats allow before the content. The first byte also sends the status, 200, so a
	// poll that expires then ends without further data, not with 204. The handler must set its
	// headers before Serve, and only headers that also suit this empty answer: none that makes
	// a cache store it. See [Polls.Serve] for how other polls end. No byte is sent in answers
	// to HEAD, nor with a ResponseWriter that cannot flush.
	KeepAwake time.Duration

	// Client returns the identity of a client, such as an account or an address, and
	// MaxPerClient bounds the pending polls of each; a poll beyond it gets 429. Defaults nil
	// and 0: no bound. Set both or none.
	Client       func(*http.Request) string
	MaxPerClient int

	// RetryAfter is the minimum of the Retry-After header for a client that cannot wait here
	// now, in whole seconds. The value is random, up to twice that, so that clients that leave
	// together do not return together. Default 1 s; 1 s to 1 h.
	RetryAfter time.Duration

	// OnError is called with the error behind each 500 of [Polls.Serve], before the response is
	// written, on the handler's goroutine: usually for a check that has panicked, which
	// purgatory.Options.OnPanic also receives, or for an Await without keys. Default: log an
	// error with slog's default logger.
	OnError func(*http.Request, error)
}

func (o Options) withDefaults() (Options, error) {
	setDefault := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	setDefault(&o.Wait, 30*time.Second)
	setDefault(&o.MaxWait, max(60*time.Second, o.Wait))
	setDefault(&o.RetryAfter, time.Second)
	if o.Query == "" {
		o.Query = "wait"
	}
	if o.OnError == nil {
		o.OnError = logError
	}
	for _, f := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"Wait", o.Wait, time.Millisecond, 24 * time.Hour},
		{"MaxWait", o.MaxWait, o.Wait, 24 * time.Hour},
		{"KeepAwake", max(o.KeepAwake, 0), 0, 24 * time.Hour},
		{"RetryAfter", o.RetryAfter, time.Second, time.Hour},
	} {
		if f.value < f.least || f.value > f.most {
			return o, fmt.Errorf("longpoll: Options.%s is %v, must be from %v to %v", f.name, f.value, f.least, f.most)
		}
	}
	if o.KeepAwake < 0 || o.KeepAwake > 0 && o.KeepAwake < 10*time.Millisecond {
		return o, fmt.Errorf("longpoll: Options.KeepAwake is %v, must be 0 or at least 10ms", o.KeepAwake)
	}
	if o.MaxPerClient < 0 || (o.Client == nil) != (o.MaxPerClient == 0) {
		return o, fmt.Errorf("longpoll: Options.MaxPerClient is %d, must be at least 1 with Options.Client, and 0 without it", o.MaxPerClient)
	}
	return o, nil
}

func logError(r *http.Request, err error) {
	slog.Error("longpoll: poll failed", "method", r.Method, "path", r.URL.Path, "error", err)
}
