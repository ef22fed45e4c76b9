// Package livepage is the -http flag of the examples: a live page that shows their state, and the
// same state as metrics for Prometheus.
package livepage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/observe"
)

// Page serves a program's metrics if the -http flag has an address. A nil Page and a Page without
// the flag do nothing.
type Page struct {
	addr     string
	registry *observe.Registry
	server   *http.Server
	ended    chan struct{} // closed when the server has ended
}

// AddFlag adds the flag -http.
func AddFlag(flags *flag.FlagSet) *Page {
	p := &Page{registry: observe.New()}
	flags.StringVar(&p.addr, "http", "", "host:port, of loopback, of a live page that shows what is held, with /metrics for Prometheus; such as 127.0.0.1:19080, port 0 picks a free one")
	return p
}

// Check returns an error unless the flag is a loopback host:port: the page has no access control.
func (p *Page) Check() error {
	if p.addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(p.addr)
	if err != nil {
		return fmt.Errorf("-http is %q: %w", p.addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-http is %q, must be loopback: the page shows keys and has no login", p.addr)
	}
	return nil
}

// Registry returns the registry that the page shows, nil without the flag.
func (p *Page) Registry() *observe.Registry {
	if p == nil || p.addr == "" {
		return nil
	}
	return p.registry
}

// Start starts serving and reports the address with say.
func (p *Page) Start(say func(format string, args ...any)) error {
	if p.Registry() == nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("-http: %w", err)
	}
	p.server = observe.NewServer(p.registry)
	p.ended = make(chan struct{})
	say("a page shows what is held: http://%s/ (for Prometheus: /metrics)", l.Addr())
	go func() {
		defer close(p.ended)
		_ = p.server.Serve(l) // until Stop
	}()
	return nil
}

// Stop ends the page. It leaves no goroutine behind.
func (p *Page) Stop() error {
	if p == nil || p.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // a client that does not read
		err = p.server.Close()
	}
	<-p.ended
	return err
}

// Add shows a source on the page until remove is called. Without a page it does nothing.
func Add(r *observe.Registry, name string, s observe.Source) (remove func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	return r.Add(name, s)
}

// Named is a source and its name on the page.
type Named struct {
	Name string
	observe.Source
}

// AddAll adds several sources. If it returns an error, it has added none.
func AddAll(r *observe.Registry, sources ...Named) (remove func(), err error) {
	var added []func()
	remove = func() {
		for _, f := range added {
			f()
		}
	}
	for _, s := range sources {
		f, err := Add(r, s.Name, s.Source)
		if err != nil {
			remove()
			return nil, err
		}
		added = append(added, f)
	}
	return remove, nil
}
