package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/seed-782fa212/limbo/observe"
)

// startPage serves the live page at Config.Page, if set, until the caller calls stop. When the ctx
// of stop ends, stop closes the open connections without an error, because an open page must not
// fail the shutdown.
func (d *daemon) startPage(metrics *observe.Registry) (stop func(context.Context) error, err error) {
	if d.c.Page == "" {
		return func(context.Context) error { return nil }, nil
	}
	l, err := net.Listen("tcp", d.c.Page)
	if err != nil {
		return nil, fmt.Errorf("timerd: -http: %w", err)
	}
	d.c.Logger.Info("timerd shows its metrics", "http", "http://"+l.Addr().String()+"/")
	if d.c.OnPage != nil {
		d.c.OnPage(l.Addr())
	}
	server, served := observe.NewServer(metrics), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil && ctx.Err() != nil {
			// A client does not read, or has connected without a request, as browsers do; net/http
			// counts such a connection as busy for 5 s.
			err = server.Close()
		}
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
