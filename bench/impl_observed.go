package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
)

// observedRival is the purgatory while somebody looks at it: what that costs is the
// difference.
var observedRival = rival{
	name:  "purgatory-page",
	setup: "the same purgatory, with observe's page open at it: its stream is read, the hottest keys and the oldest operations with it",
	does:  []string{"W9"},
	bytes: 400,
	run: func(j Job) (Result, error) {
		p, err := purgatory.New[string](purgatory.Options{})
		if err != nil {
			return Result{}, err
		}
		defer func() { must(p.Shutdown(context.Background())) }()
		closePage, err := openPage(p)
		if err != nil {
			return Result{}, err
		}
		result, err := openLoad(j, heldRequests{p})
		return result, errors.Join(err, closePage())
	},
}

// openPage serves the page and reads its stream until the returned function is called,
// which returns an error if the stream has ended before.
func openPage(p *purgatory.Purgatory[string]) (closePage func() error, err error) {
	r := observe.New()
	if _, err := r.Add("requests", observe.Purgatory(p, nil)); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := observe.NewServer(r)
	served, ended := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(l) }()
	stream, err := http.Get("http://" + l.Addr().String() + "/events?kind=purgatory&name=requests") //nolint:bodyclose // it is closed by the goroutine that reads it
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	if stream.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New("the page has no stream: "+stream.Status), stream.Body.Close(), server.Close())
	}
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stream.Body) // until the server ends it
		_ = stream.Body.Close()
	}()
	return func() error {
		var early error
		select {
		case <-ended:
			early = errors.New("the page's stream has ended early")
		default:
		}
		err := server.Shutdown(context.Background())
		<-ended
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return errors.Join(early, err)
	}, nil
}
