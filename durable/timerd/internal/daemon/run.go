package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/zones"
	"github.com/seed-782fa212/limbo/durable/webhook"
	"github.com/seed-782fa212/limbo/observe"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
)

// Run serves until ctx ends. Then it accepts no more requests, answers those in progress, claims no
// more timers, and gives running callbacks Config.Grace to end. It also returns, with an error, if
// the store closes itself.
func Run(ctx context.Context, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	tlsConfig, err := tlsConfig(c, time.Now)
	if err != nil {
		return err
	}
	st, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer st.Close()
	if c.WrapStore != nil {
		st = c.WrapStore(st)
	}
	timers, err := durable.New(st, durable.Options{Logger: c.Logger})
	if err != nil {
		return err
	}
	defer timers.Close()

	d := &daemon{c: c}
	if c.Workers > 0 {
		if err := d.newWorker(timers); err != nil {
			return err
		}
		defer d.hook.Close()
	}
	metrics, err := d.metrics(timers)
	if err != nil {
		return err
	}
	console, closeConsole, err := d.newConsole(timers)
	if err != nil {
		return err
	}
	defer closeConsole()
	handler, err := api.New(api.Options{Timers: timers, Token: c.Token, Logger: c.Logger, Metrics: metricsOf(metrics), Console: console})
	if err != nil {
		return err
	}
	if _, err := metrics.Add("api", observe.Custom("timerd", handler.Metrics)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("timerd: %w", err)
	}
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(closeConsole)
	c.Logger.Info("timerd serves", "listen", listener.Addr().String(), "console", c.consoleURL(listener.Addr()), "store", storeName(c.Store), "shards", st.Shards(), "workers", c.Workers, "tls", tlsConfig != nil, "zones", zones.Find().String())
	if host, _, _ := net.SplitHostPort(c.Listen); tlsConfig == nil && !isLoopback(host) {
		c.Logger.Warn("requests and the token are not encrypted: -tls-cert and -tls-key turn TLS on", "listen", c.Listen)
	}
	if c.OnListen != nil {
		c.OnListen(listener.Addr())
	}
	stopPage, err := d.startPage(metrics)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	err = d.serve(ctx, server, listener)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), headerTimeout)
	defer cancel()
	return errors.Join(err, stopPage(grace))
}

// daemon is the worker and the metrics, which run in addition to the API.
type daemon struct {
	c      Config
	hook   *webhook.Handler // nil: no worker
	worker *durable.Worker
	late   lateness
}

func (d *daemon) newWorker(timers *durable.Timers) error {
	c := d.c
	hook, err := webhook.New(webhook.Options{
		Secret: c.Secret, Timeout: c.CallTimeout, Allow: c.Allow, PerHost: c.PerHost, MaxSnooze: c.MaxSnooze,
		UserAgent: "limbo-timerd/1",
	})
	if err != nil {
		return err
	}
	var handler durable.Handler = func(ctx context.Context, f durable.Fired) error {
		if f.Attempt == 1 {
			d.late.add(time.Since(f.Due))
		}
		return hook.Handle(ctx, f)
	}
	if c.WrapHandler != nil {
		handler = c.WrapHandler(handler)
	}
	d.hook = hook
	d.worker, err = timers.NewWorker(handler, durable.WorkerOptions{
		Name: c.Name, Concurrency: c.Workers, Lease: c.Lease, MaxAttempts: c.MaxAttempts,
		Backoff: c.Backoff, MaxBackoff: c.MaxBackoff, Grace: c.Grace,
		OnDead: func(f durable.Fired, err error) {
			c.Logger.Warn("dead letter", "key", durable.KeyText(f.Key), "topic", f.Topic, "attempt", f.Attempt, "error", err)
		},
	})
	return err
}

// serve runs the server and the worker until ctx ends or one of them fails.
func (d *daemon) serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var serverDone, workerDone = make(chan error, 1), make(chan error, 1)
	go func() {
		serve := server.Serve
		if server.TLSConfig != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		err := serve(listener)
		stop(err)
		serverDone <- err
	}()
	go func() {
		if d.worker == nil {
			workerDone <- nil
			return
		}
		err := d.worker.Run(ctx)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil
		} else {
			stop(err)
		}
		workerDone <- err
	}()
	<-ctx.Done()
	d.c.Logger.Info("timerd stops", "grace", d.c.Grace)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.c.Grace+5*time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	if e := <-serverDone; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	err = errors.Join(err, <-workerDone)
	d.c.Logger.Info("timerd has stopped", "error", err)
	return err
}
