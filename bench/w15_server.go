package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// pollHolder makes requests wait for the events of their keys.
type pollHolder interface {
	// wait returns when k has an event, and reports whether the request is to be answered.
	wait(w http.ResponseWriter, r *http.Request, k *pollKey) bool
	// wake is called when k has an event.
	wake(k *pollKey)
	parked() int
	close() error
}

// pollKey is the key that one poll waits for.
type pollKey struct {
	name  string
	event atomic.Int64  // time of publication, in nanoseconds since 1970; 0 without an event
	ready chan struct{} // capacity 1; for the holder without a data structure of its own
}

var pollHolders = map[string]func() (pollHolder, error){
	"longpoll": openLongpollHolder,
	"net/http": openChannelHolder,
}

// servePolls runs W15's server, over HTTP/1.1 and over HTTP/2 without TLS. what contains the
// holder's name and the number of keys.
func servePolls(ctx context.Context, arg string) error {
	var name string
	var n int
	if _, err := fmt.Sscan(arg, &name, &n); err != nil {
		return fmt.Errorf("polls %q: %w", arg, err)
	}
	open := pollHolders[name]
	if open == nil {
		return fmt.Errorf("polls %q: there is no holder of that name", arg)
	}
	holder, err := open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, holder.close())
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: pollHandler(holder, n), Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // the clients hang up
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Printf("polls: listening on %s\n", listener.Addr())
	if err = server.Serve(listener); errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, holder.close())
}

func pollHandler(holder pollHolder, n int) http.Handler {
	keys := make([]pollKey, n)
	for i := range keys {
		keys[i].name, keys[i].ready = strconv.Itoa(i), make(chan struct{}, 1)
	}
	withKey := func(handle func(w http.ResponseWriter, r *http.Request, k *pollKey)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			i, err := strconv.Atoi(r.PathValue("key"))
			if err != nil || i < 0 || i >= n {
				http.Error(w, "there is no such key", http.StatusNotFound)
				return
			}
			handle(w, r, &keys[i])
		}
	}
	statistic := func(value func() int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, value()) }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /polls/{key}", withKey(func(w http.ResponseWriter, r *http.Request, k *pollKey) {
		if holder.wait(w, r, k) {
			_, _ = fmt.Fprint(w, k.event.Swap(0)) // the client may have disconnected
		}
	}))
	mux.HandleFunc("POST /events/{key}", withKey(func(w http.ResponseWriter, _ *http.Request, k *pollKey) {
		now := time.Now().UnixNano()
		k.event.Store(now)
		holder.wake(k)
		_, _ = fmt.Fprint(w, now)
	}))
	mux.HandleFunc("GET /parked", statistic(func() int64 { return int64(holder.parked()) }))
	mux.HandleFunc("GET /memory", statistic(func() int64 {
		heap := liveHeap()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return heap + int64(m.StackInuse)
	}))
	return mux
}
