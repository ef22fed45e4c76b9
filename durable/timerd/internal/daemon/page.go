package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/seed-782fa212/limbo/observe"
)

// startPage serves the live page at Config.Page, if that is set, until the function that it
// returns is called. What is still open when that function's ctx ends is closed, and is no
// error: a page that somebody looks at must not fail the shutdown.
func (d *daemon) startPage(figures *observe.Registry) (stop func(context.Context) error, err error) {
	if d.c.Page == "" {
		return func(context.Context) error { return nil }, nil
	}
	l, err := net.Listen("tcp", d.c.Page)
	if err != nil {
		return nil, fmt.Errorf("timerd: -http: %w", err)
	}
	d.c.Logger.Info("timerd shows its figures", "http", "http://"+l.Addr().String()+"/")
	if d.c.OnPage != nil {
		d.c.OnPage(l.Addr())
	}
	server, served := observe.NewServer(figures), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil && ctx.Err() != nil {
			// Someone who does not read; or who has connected and asked nothing yet, as
			// browsers do, which net/http takes for busy for 5 s.
			err = server.Close()
		}
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
