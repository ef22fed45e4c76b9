package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
)

// node is one server of the service. It holds polls until their rooms have new events, whichever
// node published them.
type node struct {
	id        int
	rooms     *rooms
	bus       *bus
	polls     *longpoll.Polls
	unobserve func()                       // removes the node from the page of metrics
	held      *purgatory.Purgatory[string] // polls, by room

	listener net.Listener
	server   *http.Server
	stop     context.CancelFunc
	running  sync.WaitGroup
}

const (
	maxRoom = 64   // bytes of a room's name
	maxText = 4096 // bytes of an event's text
)

//go:embed page.html
var page []byte

// startNode starts a node that serves on an address and reads the bus.
func startNode(id int, addr string, brokers []string, topic string, observed *observe.Registry) (*node, error) {
	n := &node{id: id, rooms: newRooms()}
	var err error
	if n.polls, err = longpoll.New(longpoll.Options{}); err != nil {
		return nil, err
	}
	if n.held, err = purgatory.New[string](purgatory.Options{Name: "polls of node " + strconv.Itoa(id), MaxPending: 100_000}); err != nil {
		return nil, err
	}
	if n.bus, err = openBus(brokers, topic, reconnected{n}); err != nil {
		return nil, errors.Join(err, n.held.Shutdown(context.Background()))
	}
	if n.listener, err = net.Listen("tcp", addr); err != nil {
		n.bus.close()
		return nil, errors.Join(err, n.held.Shutdown(context.Background()))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", n.page)
	mux.HandleFunc("GET /rooms/{room}", n.poll)
	mux.HandleFunc("POST /rooms/{room}", n.publish)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	n.server = &http.Server{Handler: mux, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10}
	n.server.RegisterOnShutdown(n.held.Close) // otherwise Shutdown would wait for the polls
	if n.unobserve, err = livepage.AddAll(observed,
		livepage.Named{Name: fmt.Sprintf("node %d: held", id), Source: observe.Purgatory(n.held, nil)},
		livepage.Named{Name: fmt.Sprintf("node %d", id), Source: observe.Polls(n.polls)},
	); err != nil {
		n.bus.close()
		return nil, errors.Join(err, n.listener.Close(), n.held.Shutdown(context.Background()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.running.Go(func() { n.bus.read(ctx, n.receive) })
	n.running.Go(func() { _ = n.server.Serve(n.listener) }) // until it is closed
	return n, nil
}

func (n *node) url() string { return "http://" + n.listener.Addr().String() }

// receive handles each event of the bus: first it changes the state, then it checks the polls.
func (n *node) receive(room string, e event) {
	n.rooms.add(room, e)
	n.held.CheckAndComplete(room)
}

// reconnected checks every poll when the connection to a broker has been made again. With this bus
// it is not needed, because the node continues to read where it stopped. But a check costs little,
// and a service with a bus that does not keep messages needs it.
type reconnected struct{ n *node }

func (r reconnected) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		return
	}
	for w := range r.n.held.All() {
		for _, room := range w.Keys() {
			_ = r.n.held.CheckAndCompleteLater(room) // fails only in a shutdown, which ends all polls
		}
	}
}

// poll answers as soon as a room has events from an offset on.
func (n *node) poll(w http.ResponseWriter, r *http.Request) {
	room, err := roomOf(r)
	from := int64(0)
	if text := r.URL.Query().Get("from"); err == nil && text != "" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 0 {
			err = errors.New("from must be a whole number from 0 on")
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !n.polls.Serve(w, r, func(ctx context.Context, timeout time.Duration) error {
		return n.held.Await(ctx, timeout, func() bool { return n.rooms.has(room, from) }, room)
	}) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(n.rooms.from(room, from)) // the client may have disconnected
}

// publish publishes an event. It answers when the loss of a broker can no longer lose the event.
func (n *node) publish(w http.ResponseWriter, r *http.Request) {
	sent := time.Now()
	room, err := roomOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
	if err != nil {
		http.Error(w, "what is said must be at most 4096 bytes", http.StatusRequestEntityTooLarge)
		return
	}
	e := event{Text: strings.ToValidUTF8(string(text), "�"), Node: n.id, Sent: sent.UnixMicro()}
	if err := n.bus.publish(r.Context(), room, e); err != nil {
		http.Error(w, "it could not be published", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func roomOf(r *http.Request) (string, error) {
	room := r.PathValue("room")
	if room == "" || len(room) > maxRoom {
		return "", errors.New("a room's name must be 1 to 64 bytes long")
	}
	return room, nil
}

func (n *node) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'")
	_, _ = w.Write(page)
}

// shutdown answers every poll, and ends the node.
func (n *node) shutdown(ctx context.Context) error {
	err := n.server.Shutdown(ctx)
	return errors.Join(err, n.end(ctx))
}

// kill breaks every connection without answering.
func (n *node) kill() error {
	err := n.server.Close()
	return errors.Join(err, n.end(context.Background()))
}

func (n *node) end(ctx context.Context) error {
	n.unobserve()
	n.stop()
	n.bus.close()
	err := n.held.Shutdown(ctx)
	n.running.Wait()
	return err
}
