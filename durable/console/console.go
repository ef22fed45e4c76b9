package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/internal/webpage"
)

// Options configure a console. The zero value is a console for loopback, without a token.
type Options struct {
	// ReadOnly rejects every change with 403.
	ReadOnly bool

	// Token is the secret that the page asks for once, of 16 to 1,024 bytes. Default: none; then
	// the console answers only requests whose Host is a loopback name or one of Hosts.
	Token string

	// Hosts are further names, without ports, under which a console without a Token answers. An
	// attacker's page could have pointed any other name at this machine.
	Hosts []string

	// Logger records every change: the remote address, the action and the number of timers.
	// Default: slog's default logger.
	Logger *slog.Logger

	// Decode returns the text that the page shows for a body; the page does not get the body
	// itself. If the text is JSON, the console hides the values of secret headers in each object
	// named "headers": Authorization, Proxy-Authorization, Cookie, Set-Cookie, and all names that
	// end with Token, Secret, Password, API-Key, APIKey or Access-Key, in any case. It shows
	// secrets elsewhere. Default: the page shows the whole body as text, JSON or hexadecimal
	// digits.
	Decode func(topic string, body []byte) string

	// API is the address of timerd's HTTP API relative to the page, such as "../". The page uses it
	// in commands for curl that it offers to copy. Default: none, and no commands.
	API string

	// CheckBody checks the body of a schedule that the page creates or whose body it edits. The
	// page shows its error. Default: any body is valid.
	CheckBody func(topic string, body []byte) error

	// TrustedProxies are the networks of proxies whose X-Forwarded-For the console believes. The
	// address of a client is then the last in that header that is not a trusted proxy's. It is
	// logged, and wrong tokens are counted by it. Default: none, and the address is the peer's.
	TrustedProxies []netip.Prefix

	// Process names this process in its bulk actions. Default: the host's name and the process ID.
	Process string

	// MaxStreams bounds the open pages with live values. Default 64; 1 to 1,024.
	MaxStreams int

	// MaxBulk bounds the bulk actions that run at once. Default 4; 1 to 16.
	MaxBulk int
}

const (
	minToken = 16
	maxToken = 1024
)

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Process == "" {
		host, _ := os.Hostname() // on error the process ID alone names the process
		o.Process = fmt.Sprintf("%.64s-%d", host, os.Getpid())
	}
	o.MaxStreams = cmp.Or(o.MaxStreams, 64)
	o.MaxBulk = cmp.Or(o.MaxBulk, 4)
	if n := len(o.Token); n != 0 && (n < minToken || n > maxToken) {
		return o, fmt.Errorf("console: Options.Token is %d bytes long, must be %d to %d", n, minToken, maxToken)
	}
	if _, err := url.Parse(o.API); err != nil {
		return o, fmt.Errorf("console: Options.API is %.64q, must be a URL", o.API)
	}
	for _, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/ ") {
			return o, fmt.Errorf("console: Options.Hosts has %.64q, must be host names without ports", host)
		}
	}
	for _, p := range o.TrustedProxies {
		if p.Bits() < 1 || p.Addr().Is4In6() {
			return o, fmt.Errorf("console: Options.TrustedProxies has %q, must be networks of proxies such as 10.0.0.0/8, not all addresses", p)
		}
	}
	for _, bound := range []struct {
		field     string
		value, to int
	}{{"MaxStreams", o.MaxStreams, 1024}, {"MaxBulk", o.MaxBulk, 16}} {
		if bound.value < 1 || bound.value > bound.to {
			return o, fmt.Errorf("console: Options.%s is %d, must be 1 to %d", bound.field, bound.value, bound.to)
		}
	}
	return o, nil
}

// Console serves the page and its API. Make one with [New].
type Console struct {
	timers      *durable.Timers
	options     Options
	mux         http.ServeMux
	sessions    sessions
	crossOrigin http.CrossOriginProtection // trusts no other origin
	feed        *webpage.Feed
	bulk        bulk

	ctx  context.Context // of the bulk actions; Close cancels it
	stop context.CancelFunc
}

// New returns a console of timers. If timers is nil or an option is out of range, it returns an
// error that names it. The console has no goroutine while no page is open and no bulk action runs.
func New(timers *durable.Timers, o Options) (*Console, error) {
	if timers == nil {
		return nil, errors.New("console: the timers are nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Console{timers: timers, options: o}
	if c.sessions, err = newSessions(o.Token); err != nil {
		return nil, err
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.feed = webpage.NewFeed(o.MaxStreams, c.events)
	webpage.Handle(&c.mux, page())
	c.mux.HandleFunc("GET /api/session", c.serveSession)
	c.mux.HandleFunc("POST /api/login", c.serveLogin)
	c.mux.HandleFunc("POST /api/logout", c.serveLogout)

	c.read("GET /api/overview", c.overview)
	c.read("GET /api/timers", c.listTimers)
	c.read("GET /api/count", c.countTimers)
	c.read("GET /api/timer", c.getTimer)
	c.read("GET /api/bulk", c.listBulk)
	c.read("GET /api/bulk/{id}", c.getBulk)
	c.read("GET /api/schedules", c.listSchedules)
	c.read("GET /api/schedule", c.getSchedule)
	c.read("POST /api/schedules/preview", c.previewSchedule)
	c.mux.HandleFunc("GET /api/live", c.serveLive)

	c.change("POST /api/timers/{action}", c.changeTimers)
	c.change("POST /api/bulk", c.startBulk)
	c.change("POST /api/bulk/{id}/stop", c.stopBulk)
	c.change("POST /api/schedules/{action}", c.changeSchedule)
	return c, nil
}

// Close ends the streams and the bulk actions, waits for the bulk actions, and refuses new ones.
// Further calls are harmless. After server.RegisterOnShutdown(console.Close), an http.Server calls
// it when it shuts down.
func (c *Console) Close() {
	c.stop()
	c.feed.Close()
	c.bulk.wait()
}

// ServeHTTP is part of [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeader(w.Header())
	if err := c.guard(r); err != nil {
		writeError(w, err)
		return
	}
	if webpage.Redirect(w, r) {
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	}
	c.mux.ServeHTTP(w, r)
}

// Bounds of requests and replies.
const (
	maxRequest = 1 << 20
	readFor    = 5 * time.Second // for a list or a count
)

// read adds a route that changes nothing. It also works with ReadOnly.
func (c *Console) read(pattern string, f func(r *http.Request) (any, error)) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := c.authorize(r); err != nil {
			writeError(w, err)
			return
		}
		c.answer(w, r, f)
	})
}

// change adds a route that ReadOnly rejects.
func (c *Console) change(pattern string, f func(r *http.Request) (any, error)) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		err := c.authorize(r)
		if err == nil && c.options.ReadOnly {
			err = &failure{Status: http.StatusForbidden, Message: "the console is read-only"}
		}
		if err != nil {
			writeError(w, err)
			return
		}
		c.answer(w, r, f)
	})
}

func (c *Console) answer(w http.ResponseWriter, r *http.Request, f func(r *http.Request) (any, error)) {
	v, err := f(r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// log records a change.
func (c *Console) log(r *http.Request, action string, args ...any) {
	c.options.Logger.Info("console: change", append([]any{"remote", r.RemoteAddr, "client", c.client(r), "action", action}, args...)...)
}
