package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// observedRivals are limbo's rivals while their page is open. The difference from the plain ones
// is the cost of the page.
var observedRivals = []rival{{
	name:      "timingwheel-page",
	setup:     "the same wheel, with observe's page open at it",
	workloads: []string{"W4"},
	variant:   true,
	bytes:     50,
	run: inProcess(func(fire func(uint64)) (Timers[timingwheel.Timer], error) {
		w, err := timingwheel.New(fire, timingwheel.Options{})
		if err != nil {
			return nil, err
		}
		closePage, err := openPage(observe.Wheel(w), "")
		if err != nil {
			_, _ = w.Close(timingwheel.Discard)
			return nil, err
		}
		return &observedTimers{wheelTimers{w}, closePage}, nil
	}),
}, {
	name:      "purgatory-page",
	setup:     "the same purgatory, with observe's page open at it: its stream is read, the hottest keys and the oldest operations with it",
	workloads: []string{"W9"},
	bytes:     400,
	run: func(j Job) (Result, error) {
		p, err := purgatory.New[string](purgatory.Options{})
		if err != nil {
			return Result{}, err
		}
		defer func() { must(p.Shutdown(context.Background())) }()
		closePage, err := openPage(observe.Purgatory(p, nil), "purgatory")
		if err != nil {
			return Result{}, err
		}
		result, err := openLoad(j, heldRequests{p})
		return result, errors.Join(err, closePage())
	},
}}

type observedTimers struct {
	wheelTimers
	closePage func() error
}

func (t *observedTimers) Close() {
	must(t.closePage())
	t.wheelTimers.Close()
}

// openPage serves the page of a source and reads its stream until the returned function is
// called. That function returns an error if the stream has ended early. The stream includes the
// lists of the source if lists is its kind.
func openPage(s observe.Source, lists string) (closePage func() error, err error) {
	const name = "observed"
	r := observe.New()
	if _, err := r.Add(name, s); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := observe.NewServer(r)
	served, ended := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(l) }()
	address := "http://" + l.Addr().String() + "/events"
	if lists != "" {
		address += "?" + url.Values{"kind": {lists}, "name": {name}}.Encode()
	}
	stream, err := http.Get(address) //nolint:bodyclose // it is closed by the goroutine that reads it
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
