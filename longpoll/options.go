package longpoll

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options configures polls. The zero value is a good default.
type Options struct {
	// Wait is how long a poll waits that does not say, and MaxWait the longest that one
	// can ask for; a poll that asks for more waits for MaxWait. Defaults 30 s and 60 s, or
	// Wait if that is longer; 1 ms to 24 h.
	Wait, MaxWait time.Duration

	// Query is the name of the query's parameter by which a client can say how long to
	// wait, in seconds ("30", "0.5") or as Go writes durations ("500ms"). Default "wait".
	// A client can say so in the header, too: "Prefer: wait=30" (RFC 7240).
	Query string

	// KeepAwake is how often a byte is sent while a poll waits, for proxies that end
	// connections on which nothing happens. Default 0: never; at least 10 ms. The byte is
	// a newline, which JSON and most text formats allow in front. With the first one goes
	// the status, 200: a poll that expires then ends with nothing more, not with 204, and
	// headers must have been set before, those only that are right for this empty answer
	// too: none that has a cache keep it. See [Polls.Serve] for how others end. Nothing is
	// sent where nothing would go out: in answers to HEAD, and by a ResponseWriter that
	// cannot flush.
	KeepAwake time.Duration

	// Client returns what tells one client from another, an account or an address, and
	// MaxPerClient bounds the polls that wait for each; one beyond it gets 429. Defaults
	// nil and 0: no bound. Both or none.
	Client       func(*http.Request) string
	MaxPerClient int

	// RetryAfter is what a client that cannot wait here now is told to wait before it
	// comes again, in whole seconds, and up to twice that, at random, so that those who
	// leave together do not come back together. Default 1 s; 1 s to 1 h.
	RetryAfter time.Duration

	// OnError is called with the error behind each 500 that [Polls.Serve] gives, before
	// that is written, on the goroutine of the handler: as a rule a check that has
	// panicked, of which purgatory.Options.OnPanic is told too, or an Await without keys.
	// Default: an error on slog's default logger.
	OnError func(*http.Request, error)
}

func (o Options) withDefaults() (Options, error) {
	fill := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	fill(&o.Wait, 30*time.Second)
	fill(&o.MaxWait, max(60*time.Second, o.Wait))
	fill(&o.RetryAfter, time.Second)
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
		return o, fmt.Errorf("longpoll: Options.MaxPerClient is %d, must be at least 1 beside Options.Client, and 0 without", o.MaxPerClient)
	}
	return o, nil
}

func logError(r *http.Request, err error) {
	slog.Error("longpoll: poll failed", "method", r.Method, "path", r.URL.Path, "error", err)
}
