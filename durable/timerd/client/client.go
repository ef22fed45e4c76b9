package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// NoRetries is the value of Options.Retries for a client that sends each request once.
const NoRetries = -1

const (
	// MaxReply bounds the body of a reply, in bytes. It is more than twice the largest page of
	// a list. A larger reply is an error.
	MaxReply = 16 << 20
	// MaxRetryAfter is the longest Retry-After that a Client waits for. A longer one ends the
	// retries.
	MaxRetryAfter = time.Minute

	defaultTimeout    = 20 * time.Second // timerd replies within 15 s
	defaultRetries    = 3
	defaultBackoff    = 100 * time.Millisecond
	defaultMaxBackoff = 5 * time.Second
	defaultIdleConns  = 100
)

// Options configure a Client. The zero value is valid.
type Options struct {
	// Token is sent with each request: the content of timerd's -token-file.
	Token string
	// HTTPClient sends the requests. Its Transport has the TLS configuration. The default has a
	// transport of its own. The Client never follows redirects, whatever CheckRedirect says: a
	// redirected PUT would become a GET.
	HTTPClient *http.Client
	// Timeout of one attempt, including the time to read the reply: 1ms to 10m, default 20s.
	Timeout time.Duration
	// Retries is the maximum number of repetitions of a request: 1 to 100, NoRetries, or 0 for the
	// default of 3.
	Retries int
	// Backoff bounds the pause before the first retry; the bound doubles with each further
	// retry, up to MaxBackoff. A pause is between half of its bound and the bound. Backoff is
	// 1ms to 1m, default 100ms; MaxBackoff is Backoff to 10m, default 5s.
	Backoff, MaxBackoff time.Duration
}

// Client makes requests to one timerd. All methods are safe for concurrent use.
type Client struct {
	o    Options
	base string // without a slash at its end
	http http.Client
}

// New returns a client of the timerd at baseURL, such as http://127.0.0.1:7717 or
// https://example.com/timerd. It sends nothing.
func New(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	const must = "an absolute URL with http or https, without user, query and fragment"
	switch {
	case err != nil:
		return nil, invalid("baseURL", "not a URL", must) // without its text, which may have a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(baseURL, "?#"):
		return nil, invalid("baseURL", quoteShort(u.Redacted()), must)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Retries = cmp.Or(o.Retries, defaultRetries)
	o.Backoff = cmp.Or(o.Backoff, defaultBackoff)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(defaultMaxBackoff, o.Backoff))
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &Client{o: o, base: strings.TrimRight(baseURL, "/")}
	if o.HTTPClient != nil {
		c.http = *o.HTTPClient
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		// The default of two idle connections to a host would make concurrent callers connect
		// again and again.
		t = t.Clone()
		t.MaxIdleConnsPerHost = defaultIdleConns
		c.http.Transport = t
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

func (o *Options) check() error {
	for i := range len(o.Token) {
		if b := o.Token[i]; b <= ' ' || b == 0x7f {
			// The message has nothing else of the token, because it can reach logs.
			return invalid("Options.Token", fmt.Sprintf("with byte %#02x at offset %d", b, i), "without white space and control characters")
		}
	}
	between := func(field string, d, low, high time.Duration) error {
		if d < low || d > high {
			return invalid("Options."+field, d.String(), fmt.Sprintf("%v to %v", low, high))
		}
		return nil
	}
	if err := between("Timeout", o.Timeout, time.Millisecond, 10*time.Minute); err != nil {
		return err
	}
	if o.Retries < NoRetries || o.Retries > 100 {
		return invalid("Options.Retries", fmt.Sprint(o.Retries), "-1 (NoRetries) to 100")
	}
	if err := between("Backoff", o.Backoff, time.Millisecond, time.Minute); err != nil {
		return err
	}
	return between("MaxBackoff", o.MaxBackoff, o.Backoff, 10*time.Minute)
}

// CloseIdleConnections closes the connections that are not in use.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Ping returns nil if timerd and its store answer. The client sends it once, without retries; it
// needs no token.
func (c *Client) Ping(ctx context.Context) error {
	var status string
	_, err := c.call(ctx, request{method: http.MethodGet, path: "/healthz", kind: readOnly, once: true}, into(&status, (*reader).status))
	return err
}
