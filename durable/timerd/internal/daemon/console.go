package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

const (
	consoleOn       = "on"
	consoleReadOnly = "read-only"
	consoleOff      = "off"
)

// consoleURL is the console's address for the log; "off" without one. An address that stands for
// all of the machine's is shown as localhost.
func (c *Config) consoleURL(listen net.Addr) string {
	if c.Console == "" || c.Console == consoleOff {
		return consoleOff
	}
	scheme, address := "http", listen.String()
	if c.TLSCert != "" {
		scheme = "https"
	}
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsUnspecified() {
		address = fmt.Sprintf("localhost:%d", a.Port())
	}
	return scheme + "://" + address + "/console/"
}

// newConsole returns the console that Config.Console selects, if any, and a function that closes
// it.
func (d *daemon) newConsole(timers *durable.Timers) (_ http.Handler, closeConsole func(), err error) {
	if d.c.Console == "" || d.c.Console == consoleOff {
		return nil, func() {}, nil
	}
	c, err := console.New(timers, console.Options{
		API:   "../", // the console is mounted at /console/
		Token: d.c.Token, ReadOnly: d.c.Console == consoleReadOnly, Logger: d.c.Logger,
		TrustedProxies: d.c.TrustedProxies, Process: d.c.Name,
		Decode: func(_ string, body []byte) string { return api.Readable(body) },
		CheckBody: func(_ string, body []byte) error {
			if _, err := webhook.Decode(body); err != nil {
				return fmt.Errorf(`it must be a call, such as {"v":1,"url":"https://example.org/run","text":"what is sent"}: %w`, err)
			}
			return nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}
